#include "tutti/base/error.hpp"
#include "tutti/comm/communicator.hpp"

#include "summed_values.hpp"
#include "support/mpi_world.hpp"
#include "support/size_limit.hpp"

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <tuple>

namespace tutti {
namespace {

// If ranks enqueue different operations, finish() must throw on both of them.
class MismatchedSums : public testing::TestWithParam<std::tuple<AllReduceAlgorithm, bool>> {};

TEST_P(MismatchedSums, AreReportedByFinishWhicheverThreadDrives) {
  World& world = test_world();
  const auto [algorithm, helper_thread] = GetParam();
  const auto communicator = make_mpi_communicator(world, {.helper_thread = helper_thread, .algorithm = algorithm});
  IdleStream stream;
  const std::int64_t elements = world.rank() == 0 ? 8 : 16;
  const Buffer memory = communicator->allocate(64);
  communicator->all_reduce(memory.view(Shape{elements}, ElementType::f32), stream);
  EXPECT_THROW(communicator->finish(stream), Error);
  EXPECT_FALSE(communicator->progress());
  EXPECT_THROW(communicator->finish(stream), Error);
  // The memory must exist until both ranks have handled their errors.
  world.barrier();
}

std::unique_ptr<SizeLimit> limit_of_rank_0(rlim_t bytes) {
  return test_world().rank() == 0 ? std::make_unique<SizeLimit>(bytes) : nullptr;
}

TEST(SharedMemory, IsNotUsedWhereOneRankCannotAllocateIt) {
  World& world = test_world();
  const auto limit = limit_of_rank_0(0);
  const auto communicator = make_mpi_communicator(world, {});
  EXPECT_EQ(communicator->description(), "ring over " + world.description());
}

TEST(SharedMemory, OfWhichOneRankHasTooLittleIsReportedByAllRanks) {
  const auto limit = limit_of_rank_0(1 << 16);
  EXPECT_THROW(make_mpi_communicator(test_world(), {}), Error);
}

std::string name_of_case(const testing::TestParamInfo<std::tuple<AllReduceAlgorithm, bool>>& which) {
  return std::string(name_of(std::get<0>(which.param))) +
         (std::get<1>(which.param) ? "_with_helper_thread" : "_driven_by_the_caller");
}

INSTANTIATE_TEST_SUITE_P(Mpi, MismatchedSums,
                         testing::Combine(testing::Values(AllReduceAlgorithm::ring, AllReduceAlgorithm::direct,
                                                          AllReduceAlgorithm::shared_memory),
                                          testing::Bool()),
                         name_of_case);

}  // namespace
}  // namespace tutti
