#include "tutti/backend/backend.hpp"
#include "tutti/comm/communicator.hpp"
#include "tutti/comm/world.hpp"

#include "support/mpi_world.hpp"

#include <gtest/gtest.h>

namespace tutti {
namespace {

TEST(Meetings, AreCountedInTheWorldItsPartsAndItsSums) {
  World& world = test_world();
  Meetings meetings;
  Meetings& before = world.meetings();
  world.count_in(meetings);
  world.barrier();
  EXPECT_EQ(meetings.done, 1u);
  const auto part = world.split(world.rank() % 2);
  const std::uint64_t parted = meetings.done;
  part->barrier();
  EXPECT_EQ(meetings.done, parted + 1);
  const auto communicator = make_mpi_ring_communicator(world, {.algorithm = SumAlgorithm::ring});
  const std::uint64_t connected = meetings.begun;
  const auto stream = make_cpu_backend()->make_stream();
  const Buffer memory = communicator->allocate(64);
  communicator->all_reduce_sum(memory.view(Shape{16}, ElementType::f32), *stream);
  EXPECT_EQ(meetings.begun, connected + 1);
  communicator->finish(*stream);
  EXPECT_EQ(meetings.done, meetings.begun);
  world.barrier();
  world.count_in(before);
}

}  // namespace
}  // namespace tutti
