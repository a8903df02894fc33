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

TEST(CollectiveCounter, AreCountedInTheWorldItsPartsAndItsSums) {
  World& world = test_world();
  CollectiveCounter collectives;
  CollectiveCounter& before = world.collectives();
  world.count_in(collectives);
  world.barrier();
  EXPECT_EQ(collectives.done, 1u);
  const auto part = world.split(world.rank() % 2);
  const std::uint64_t parted = collectives.done;
  part->barrier();
  EXPECT_EQ(collectives.done, parted + 1);
  const auto communicator = make_mpi_ring_communicator(world, {.algorithm = SumAlgorithm::ring});
  const std::uint64_t connected = collectives.begun;
  const auto stream = make_cpu_backend()->make_stream();
  const Buffer memory = communicator->allocate(64);
  communicator->all_reduce(memory.view(Shape{16}, ElementType::f32), *stream);
  EXPECT_EQ(collectives.begun, connected + 1);
  communicator->finish(*stream);
  EXPECT_EQ(collectives.done, collectives.begun);
  world.barrier();
  world.count_in(before);
}

// In which phases a rank got through collectives.
class MetIn : public PhaseListener {
 public:
  void on_end(const PhaseSpan& span) override {
    const std::uint64_t done = test_world().collectives().done;
    if (std::exchange(done_, done) != done) phases.insert(span.at.phase);
  }
  std::set<Phase> phases;

 private:
  std::uint64_t done_ = test_world().collectives().done;
};

TEST(CollectiveCounter, OfARunAreWaitedForInThePhaseThatSaysSo) {
  TrainerOptions options;
  options.num_parts = 4 * test_world().size();
  options.batch_size = 2 * options.num_parts;
  options.part_map.measured = true;
  options.exchange.kind = Exchange::sharded;
  options.steps = 7;  // one look at the speeds
  options.digest_every_steps = 1;
  options.checkpoint_every_steps = 3;
  const OwnedData data = open_small("synthetic:200x1x8x8:3");
  RankStatus rank_status;
  RankRun run(test_world(), small_resnet(), data.pair, options, &rank_status);
  Recorder seen;
  MetIn met;
  rank_status.add(met);
  run.trainer.run(seen);
  EXPECT_TRUE(met.phases.erase(Phase::waiting));
  met.phases.erase(Phase::exchange);  // sums that go on meanwhile
  met.phases.erase(Phase::backward);
  EXPECT_TRUE(met.phases.empty()) << name_of(*met.phases.begin());
}

}  // namespace
}  // namespace tutti
