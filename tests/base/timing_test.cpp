#include "tutti/base/timing.hpp"

#include <gtest/gtest.h>

namespace tutti {
namespace {

TEST(Quartiles, LiesBetweenTheTwoNearestValuesOfTheSample) {
  const Quartiles spread = quartiles_of({40, 10, 30, 20});
  EXPECT_DOUBLE_EQ(spread.low, 17.5);
  EXPECT_DOUBLE_EQ(spread.median, 25);
  EXPECT_DOUBLE_EQ(spread.high, 32.5);
}

TEST(Quartiles, OfOneValueIsThatValue) {
  const Quartiles spread = quartiles_of({7});
  EXPECT_EQ(spread.low, 7);
  EXPECT_EQ(spread.high, 7);
}

}  // namespace
}  // namespace tutti
