#include "mpi_world.hpp"

#include <gtest/gtest.h>

namespace tutti {
namespace {

// Fails on rank 2 only. CTest expects that failure in the output: no failure of a rank other than 0 may be lost.
TEST(ExitStatus, CountsAFailureOfAnyRank) { EXPECT_NE(test_world().rank(), 2); }

}  // namespace
}  // namespace tutti
