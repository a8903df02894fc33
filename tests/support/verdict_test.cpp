#include "mpi_world.hpp"

#include <gtest/gtest.h>

namespace tutti {
namespace {

// Fails on purpose, and ctest expects to hear of it: a failure on a rank other than 0 must not be lost.
TEST(Verdict, CountsAFailureOfAnyRank) { EXPECT_NE(test_world().rank(), 2); }

}  // namespace
}  // namespace tutti
