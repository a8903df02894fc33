#include "tutti/base/error.hpp"
#include "tutti/comm/communicator.hpp"

#include "summed_values.hpp"
#include "support/mpi_world.hpp"

#include <gtest/gtest.h>

#include <vector>

namespace tutti {
namespace {

// Ranks that enqueue different sums break the promise of the seam; both ranks must hear of it from finish().
class MismatchedSums : public testing::TestWithParam<bool> {};

TEST_P(MismatchedSums, AreReportedByFinishWhoeverDrives) {
  World& world = test_world();
  const auto communicator = make_mpi_ring_communicator(world, {.helper_thread = GetParam()});
  InlineStream stream;
  std::vector<float> values(world.rank() == 0 ? 8 : 16);
  communicator->all_reduce_sum(tensor_over(values), stream);
  EXPECT_THROW(communicator->finish(stream), Error);
  EXPECT_FALSE(communicator->progress());
  EXPECT_THROW(communicator->finish(stream), Error);
  // Until both are past their errors the memory must stay.
  world.barrier();
}

INSTANTIATE_TEST_SUITE_P(Ring, MismatchedSums, testing::Bool(), [](const testing::TestParamInfo<bool>& which) {
  return which.param ? "with_helper_thread" : "driven_by_the_caller";
});

}  // namespace
}  // namespace tutti
