#include "tutti/backend/backend.hpp"
#include "tutti/comm/communicator.hpp"
#include "tutti/comm/world.hpp"

#include "support/mpi_world.hpp"
#include "train/rank_run.hpp"

#include <gtest/gtest.h>

#include <set>
#include <utility>

namespace tutti {
namespace {

TEST(CollectiveCounter, CountsTheWorldsCollectivesItsSubgroupsAndItsAllReduces) {
  World& world = test_world();
  CollectiveCounter collectives;
  CollectiveCounter& before = world.collectives();
  world.set_collective_counter(collectives);
  world.barrier();
  EXPECT_EQ(collectives.done, 1u);
  const auto subgroup = world.split(world.rank() % 2);
  const std::uint64_t after_split = collectives.done;
  subgroup->barrier();
  EXPECT_EQ(collectives.done, after_split + 1);
  const auto communicator = make_mpi_communicator(world, {.algorithm = AllReduceAlgorithm::ring});
  const std::uint64_t connected = collectives.begun;
  const auto stream = make_cpu_backend()->make_stream();
  const Buffer memory = communicator->allocate(64);
  communicator->all_reduce(memory.view(Shape{16}, ElementType::f32), *stream);
  EXPECT_EQ(collectives.begun, connected + 1);
  communicator->finish(*stream);
  EXPECT_EQ(collectives.done, collectives.begun);
  world.barrier();
  world.set_collective_counter(before);
}

// Records the phases in which a rank completed collectives.
class CollectivePhases : public PhaseListener {
 public:
  void on_end(const PhaseSpan& span) override {
    const std::uint64_t done = test_world().collectives().done;
    if (std::exchange(done_, done) != done) phases.insert(span.at.phase);
  }
  std::set<Phase> phases;

 private:
  std::uint64_t done_ = test_world().collectives().done;
};

TEST(CollectiveCounter, IncreasesOnlyInThePhaseWaitingDuringARun) {
  TrainerOptions options;
  options.num_parts = 4 * test_world().size();
  options.batch_size = 2 * options.num_parts;
  options.part_map.balanced = true;
  options.exchange.kind = Exchange::sharded;
  options.steps = 7;  // the part map is measured once
  options.digest_every_steps = 1;
  options.checkpoint_every_steps = 3;
  const OwnedData data = open_small("synthetic:200x1x8x8:3");
  RankStatus rank_status;
  RankRun run(test_world(), small_resnet(), data.pair, options, &rank_status);
  Recorder seen;
  CollectivePhases collective;
  rank_status.add(collective);
  run.trainer.run(seen);
  EXPECT_TRUE(collective.phases.erase(Phase::waiting));
  collective.phases.erase(Phase::exchange);  // overlapped all-reduces
  collective.phases.erase(Phase::backward);
  EXPECT_TRUE(collective.phases.empty()) << name_of(*collective.phases.begin());
}

}  // namespace
}  // namespace tutti
