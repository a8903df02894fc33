#include "tutti/checkpoint/checkpoint_store.hpp"

#include "checkpoint/sample_state.hpp"
#include "checkpoint/state_equality.hpp"
#include "support/mpi_world.hpp"
#include "support/scratch_folder.hpp"
#include "support/thrown.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <optional>

namespace tutti {
namespace {

using testing::HasSubstr;
namespace fs = std::filesystem;

// One folder of rank 0's that all ranks know. Rank 0 alone looks at the files: other hosts may not have them.
class SharedFolder : public testing::Test {
 protected:
  void SetUp() override {
    if (world_.rank() == 0) folder_.emplace();
    path_ = broadcast_text(world_, folder_ ? folder_->path() : std::string(), 0);
  }
  bool first() const { return world_.rank() == 0; }
  Log log() const { return {world_.rank(), world_.host(), /*quiet=*/false}; }

  World& world_ = test_world();
  std::optional<ScratchFolder> folder_;
  std::string path_;
};

TEST_F(SharedFolder, GivesEveryRankTheCheckpointThatRankZeroFinds) {
  const CheckpointStore store(path_ + "/checkpoints");
  EXPECT_EQ(store.newest(world_, log()), std::nullopt);
  TrainState state = sample_state();
  store.save(world_, state);
  state.progress.step = 43;
  store.save(world_, state);
  if (first()) fs::resize_file(path_ + "/checkpoints/step-00000043.h5", 100);
  const auto newest = store.newest(world_, log());
  ASSERT_EQ(newest, path_ + "/checkpoints/step-00000042.h5");
  if (first()) expect_equal_bits(load_checkpoint(*newest), sample_state());
}

TEST_F(SharedFolder, WritesOnlyTheStateOfRankZero) {
  const CheckpointStore store(path_);
  TrainState state = sample_state();
  state.progress.step += world_.rank();
  store.save(world_, state);
  if (first()) {
    EXPECT_EQ(folder_->entries(), 2u);
  }
  EXPECT_EQ(store.newest(world_, log()), path_ + "/step-00000042.h5");
}

TEST_F(SharedFolder, FailsAlikeOnEveryRankWhenRankZeroCannotSave) {
  if (first()) fs::create_directory(path_ + "/step-00000042.h5");
  const Error error = thrown_by([&] { CheckpointStore(path_).save(world_, sample_state()); });
  EXPECT_EQ(error.source(), ErrorSource::save);
  EXPECT_EQ(error.reach(), ErrorReach::all_ranks);
  EXPECT_THAT(error.what(), HasSubstr(path_ + "/step-00000042.h5"));
}

TEST_F(SharedFolder, FailsAlikeOnEveryRankWhenNoCheckpointIsGood) {
  const CheckpointStore store(path_);
  store.save(world_, sample_state());
  if (first()) fs::remove(path_ + "/step-00000042.json");
  const Error error = thrown_by([&] { store.newest(world_, log()); });
  EXPECT_EQ(error.source(), ErrorSource::checkpoint);
  EXPECT_EQ(error.reach(), ErrorReach::all_ranks);
  EXPECT_THAT(error.what(), HasSubstr("none of the 1 checkpoints"));
}

}  // namespace
}  // namespace tutti
