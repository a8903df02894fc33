#include "tutti/storage/checkpoint_store.hpp"

#include "storage/sample_state.hpp"
#include "storage/state_equality.hpp"
#include "support/reports.hpp"
#include "support/shared_folder.hpp"
#include "support/thrown.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <functional>

namespace tutti {
namespace {

namespace fs = std::filesystem;

// Only rank 0 reads the files: other hosts may not have them.
class Agreement : public testing::Test {
 protected:
  bool first() const { return world_.rank() == 0; }
  Log log() const { return {world_.rank(), world_.host(), /*quiet=*/false}; }

  World& world_ = test_world();
  const SharedFolder folder_;
  const std::string& path_ = folder_.path();
};

TEST_F(Agreement, GivesEveryRankTheCheckpointThatRankZeroFinds) {
  const CheckpointStore store(path_);
  EXPECT_FALSE(store.newest(world_, log()));
  if (first()) {
    TrainState state = sample_state();
    store.save(state);
    state.progress.step = 43;
    store.save(state);
    fs::resize_file(store.path_of(43), 100);
  }
  const auto newest = store.newest(world_, log());
  ASSERT_TRUE(newest);
  EXPECT_EQ(newest->path, store.path_of(42));
  expect_equal_bits(newest->state, sample_state());
  expect_equal_bits(load_checkpoint(world_, newest->path).state, sample_state());
}

TEST_F(Agreement, FailsOnEveryRankWhenNoCheckpointIsGood) {
  const CheckpointStore store(path_);
  if (first()) {
    store.save(sample_state());
    fs::resize_file(store.path_of(42), 100);
  }
  for (const auto& finding : {std::function([&] { load_checkpoint(world_, store.path_of(42)); }),
                              std::function([&] { store.newest(world_, log()); })}) {
    const Error error = thrown_by(finding);
    EXPECT_EQ(error.source(), ErrorSource::checkpoint);
    EXPECT_EQ(error.scope(), ErrorScope::all_ranks);
    EXPECT_THAT(error.what(), mentions(path_));
  }
}

TEST_F(Agreement, ReportsTheNamedCheckpointOnEveryRank) {
  const CheckpointStore store(path_);
  if (first()) {
    fs::create_directory(path_ + "/step-00000001.json");  // which cannot be read
    fs::copy(TUTTI_GOLDEN_FOLDER "/format-1", path_);
  }
  for (const std::int64_t step : {1, 42}) {
    const Error error = thrown_by([&] { load_checkpoint(world_, store.path_of(step)); });
    EXPECT_EQ(error.source(), ErrorSource::checkpoint) << error.what();
    EXPECT_EQ(error.scope(), ErrorScope::all_ranks);
  }
}

}  // namespace
}  // namespace tutti
