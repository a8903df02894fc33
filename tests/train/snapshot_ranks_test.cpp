// The shares of one state that each rank saves.

#include "tutti/base/error.hpp"
#include "tutti/storage/checkpoint_store.hpp"

#include "support/shared_folder.hpp"
#include "support/thrown.hpp"
#include "train/rank_run.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <iterator>
#include <optional>
#include <string>
#include <vector>

namespace tutti {
namespace {

class SnapshotRanks : public testing::Test {
 protected:
  SnapshotRanks() {
    options_.num_parts = test_world().size();
    options_.batch_size = 16;
    options_.file_shard = share();
  }

  // The second rank and the last one write two files.
  static std::optional<FileShard> share() {
    const int rank = test_world().rank();
    if (rank == 0) return std::nullopt;
    return FileShard{.file = rank - 1, .files = 2};
  }
  static std::size_t arrays(const TrainState& state) {
    return state.parameters.size() + state.statistics.size() + state.optimizer.size() + state.exchange.size();
  }

  TrainerOptions options_;
  OwnedData data_ = open_small("synthetic:100x1x8x8:3");
};

TEST_F(SnapshotRanks, HaveOnlyTheArraysOfTheirShareWithEveryExchange) {
  for (const Exchange kind : {Exchange::ring, Exchange::exact, Exchange::sharded, Exchange::central}) {
    options_.exchange.kind = kind;
    options_.checkpoint_every_steps = 2;
    options_.steps = 2;
    RankRun run(test_world(), small_resnet(), data_.pair, options_);
    Recorder seen;
    run.trainer.run(seen);
    const TrainState& mine = seen.checkpoints.at(0);
    const TrainState whole = run.trainer.snapshot();
    EXPECT_EQ(mine.progress, whole.progress);
    const auto sizes = all_gather_text(test_world(), std::to_string(arrays(mine)));
    EXPECT_EQ(std::stoul(sizes[1]) + std::stoul(sizes[2]), arrays(whole));
    if (!share()) {
      EXPECT_EQ(arrays(mine), 0u);
      continue;
    }
    const bool first = share()->file == 0;
    EXPECT_GT(arrays(mine), 0u);
    EXPECT_LT(arrays(mine), arrays(whole));
    EXPECT_EQ(mine.exchange.empty(), !first || kind != Exchange::exact);
    for (const auto list : {&TrainState::parameters, &TrainState::statistics, &TrainState::optimizer}) {
      const std::vector<NamedArray>& all = whole.*list;
      for (const NamedArray& array : mine.*list) {
        const auto same = std::ranges::find(all, array.name, &NamedArray::name);
        ASSERT_NE(same, all.end()) << array.name;
        EXPECT_EQ(array.values, same->values) << array.name;
      }
    }
  }
}

TEST_F(SnapshotRanks, SaveSharesThatLoadAsOneState) {
  RankRun run(test_world(), small_resnet(), data_.pair, options_);
  run.trainer.step();
  const SharedFolder folder;
  const CheckpointStore store(folder.path());
  const TrainState whole = run.trainer.snapshot();
  const TrainState mine = run.trainer.snapshot(share());
  if (share()) store.save(mine, *share());
  test_world().barrier();
  const auto loaded = store.newest(test_world(), Log());
  ASSERT_TRUE(loaded);
  EXPECT_EQ(arrays(loaded->state), arrays(whole));
  EXPECT_EQ(loaded->state.progress.step, 1);
}

std::ptrdiff_t mappings() {
  std::ifstream maps("/proc/self/maps");
  return std::count(std::istreambuf_iterator<char>(maps), {}, '\n');
}

// Peers map the memory in which state is gathered. There is a limit to mappings.
TEST_F(SnapshotRanks, MapNoMoreMemoryEachTime) {
  options_.exchange = {.kind = Exchange::exact, .shard_optimizer = true};
  options_.optimizer.kind = OptimizerKind::adamw;
  const MpiOptions mpi{.algorithm = AllReduceAlgorithm::shared_memory};
  RankRun run(test_world(), small_resnet(), data_.pair, options_, nullptr, mpi);
  run.trainer.step();
  run.trainer.snapshot();
  const std::ptrdiff_t before = mappings();
  for (int i = 0; i < 30; ++i) run.trainer.snapshot();
  EXPECT_LT(mappings(), before + 30);
}

// Weight decay makes weights infinite that only one rank saves. The velocities are still finite.
TEST_F(SnapshotRanks, AllRefuseAStateThatIsNoLongerFinite) {
  options_.learning_rate.base = 1e30;
  options_.optimizer.weight_decay = 1e30;
  RankRun run(test_world(), small_resnet(), data_.pair, options_);
  run.trainer.step();
  const Error error = thrown_by([&] { run.trainer.snapshot(share()); });
  EXPECT_EQ(error.source(), ErrorSource::not_finite);
  EXPECT_EQ(error.scope(), ErrorScope::all_ranks);
  const std::string words = error.what();
  const bool knows = test_world().rank() == 1;
  EXPECT_EQ(words.starts_with("the state on another rank contains"), !knows) << words;
  EXPECT_EQ(words.find("/weight contains") != std::string::npos, knows) << words;
}

}  // namespace
}  // namespace tutti
