#include "tutti/base/timing.hpp"

#include <gtest/gtest.h>

namespace tutti {
namespace {

TEST(Quartiles, AreInterpolatedBetweenTheTwoNearestValues) {
  const Quartiles quartiles = quartiles_of({40, 10, 30, 20});
  EXPECT_DOUBLE_EQ(quartiles.low, 17.5);
  EXPECT_DOUBLE_EQ(quartiles.median, 25);
  EXPECT_DOUBLE_EQ(quartiles.high, 32.5);
}

TEST(Quartiles, OfOneValueAreThatValue) {
  const Quartiles quartiles = quartiles_of({7});
  EXPECT_EQ(quartiles.low, 7);
  EXPECT_EQ(quartiles.high, 7);
}

}  // namespace
}  // namespace tutti
