#include "mpi_world.hpp"

#include <gtest/gtest.h>

#include <memory>
#include <stdexcept>

namespace tutti {
namespace {

// Fails on rank 2 only. CTest expects that failure in the output: no failure of a rank other than 0 may be lost.
TEST(ExitStatus, CountsAFailureOfAnyRank) { EXPECT_NE(test_world().rank(), 2); }

// One rank leaves its test, and the others wait for it. CTest expects the reason in the output within a minute.
TEST(LeftTests, EndAllRanksAfterAnException) {
  const std::unique_ptr<World> all = test_world().split(0);
  if (all->rank() == 2) throw std::runtime_error("rank 2 threw");
  all->barrier();
}

TEST(LeftTests, EndAllRanksAfterAFatalFailure) {
  const std::unique_ptr<World> all = test_world().split(0);
  ASSERT_NE(all->rank(), 2) << "rank 2 failed";
  all->barrier();
}

}  // namespace
}  // namespace tutti
