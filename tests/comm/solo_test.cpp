#include "tutti/comm/world.hpp"

#include "shared_sums_contract.hpp"
#include "support/thrown.hpp"

#include <algorithm>
#include <cstddef>

namespace tutti {
namespace {

World& solo_world() {
  static const std::unique_ptr<World> world = make_solo_world();
  return *world;
}

const auto solo =
    testing::Values(CommunicatorCase{"solo", solo_world, [](World&) { return make_solo_communicator(); }});
INSTANTIATE_TEST_SUITE_P(Solo, CommunicatorContract, solo, case_name);
INSTANTIATE_TEST_SUITE_P(Solo, SharedSumContract, solo, case_name);

TEST(SoloWorld, IsRankZeroOfOne) {
  World& world = solo_world();
  EXPECT_EQ(world.rank(), 0);
  EXPECT_EQ(world.size(), 1);
  EXPECT_EQ(world.local_rank(), 0);
  EXPECT_EQ(world.local_size(), 1);
  EXPECT_FALSE(world.host().empty());
  EXPECT_EQ(world.description(), "no launcher");
}

TEST(SoloWorld, AgreesWithItself) {
  EXPECT_TRUE(solo_world().all_true(true));
  EXPECT_FALSE(solo_world().all_true(false));
  EXPECT_EQ(broadcast_text(solo_world(), "alone", 0), "alone");
  EXPECT_EQ(all_gather_text(solo_world(), "alone"), std::vector<std::string>{"alone"});
}

TEST(SoloWorld, FindsItsOwnMaximum) {
  World& world = solo_world();
  EXPECT_THROW(world.finish_max(), Error);
  world.start_max(-5);
  EXPECT_THROW(world.start_max(1), Error);
  EXPECT_EQ(world.finish_max(), -5);
  EXPECT_THROW(world.finish_max(), Error);
}

TEST(SoloWorld, RefusesABroadcastFromAMissingRank) { EXPECT_THROW(broadcast_text(solo_world(), "x", 1), Error); }

TEST(SoloWorld, HasTheMemoryOfItsNodeToItself) {
  const Buffer memory = solo_world().node_memory(100);
  ASSERT_EQ(memory.bytes(), 100U);
  const auto* bytes = static_cast<const std::byte*>(memory.data());
  EXPECT_EQ(std::count(bytes, bytes + 100, std::byte{0}), 100);
  solo_world().node_barrier();
}

TEST(SoloWorld, SplitsIntoItselfOrNothing) {
  EXPECT_EQ(solo_world().split(-1), nullptr);
  ASSERT_NE(solo_world().split(3), nullptr);
  EXPECT_EQ(solo_world().split(3)->size(), 1);
}

TEST(SoloWorld, PassesAnErrorOnWithoutARank) {
  run_or_throw_on_all(solo_world(), [] {});
  const Error error =
      thrown_by([] { run_or_throw_on_all(solo_world(), [] { throw Error(ErrorSource::io, "cannot read a.h5"); }); });
  EXPECT_STREQ(error.what(), "cannot read a.h5");
  EXPECT_EQ(error.source(), ErrorSource::io);
  EXPECT_EQ(error.scope(), ErrorScope::all_ranks);
}

TEST(SoloWorldDeathTest, AbortsWithTheStatusGiven) {
  EXPECT_EXIT(make_solo_world()->abort(70), testing::ExitedWithCode(70), "");
}

TEST(MpiCommunicator, RefusesAWorldWithoutMpi) {
  EXPECT_THROW(make_mpi_communicator(solo_world(), {}), Error);
  EXPECT_THROW(make_mpi_library_communicator(solo_world()), Error);
}

}  // namespace
}  // namespace tutti
