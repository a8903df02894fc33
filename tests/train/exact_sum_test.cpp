#include "train/gradient_accumulator.hpp"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>

namespace tutti {
namespace {

std::int32_t bits(float value) { return std::bit_cast<std::int32_t>(value); }
bool accept(GridLevel& level, std::int32_t largest_bits) { return level.accept(largest_bits, kLongSums); }

TEST(GridLevel, IsLearntFromTheFirstStepWhichIsRepeated) {
  GridLevel level;
  EXPECT_FALSE(accept(level, bits(0.75F)));
  EXPECT_EQ(level.level, 0);
  EXPECT_TRUE(accept(level, bits(0.75F)));
  EXPECT_EQ(level.level, 0);
}

TEST(GridLevel, IsAboveTheGreatestByAFactorOfTwoAtMost) {
  for (const float largest : {1e-45F, 3e-42F, 0x1p-127F, 0x1p-126F, 0.3F, 1.0F, 1.5F, 2.0F, 3e38F}) {
    GridLevel level;
    accept(level, bits(largest));
    int exponent = 0;
    std::frexp(largest, &exponent);
    EXPECT_EQ(level.level, exponent) << largest;
  }
}

TEST(GridLevel, RisesAtOnceAndSinksByOneAStep) {
  GridLevel level{.level = 0};
  EXPECT_TRUE(accept(level, bits(100)));
  EXPECT_EQ(level.level, 7);
  EXPECT_TRUE(accept(level, bits(1e-3F)));
  EXPECT_EQ(level.level, 6);
}

// A single large step must not leave a grid on which all later gradients are rounded to zero.
TEST(GridLevel, FallsAtOnceAfterAnOutlier) {
  GridLevel level{.level = 0};
  EXPECT_FALSE(accept(level, bits(0x1p87F)));
  EXPECT_EQ(level.level, 88);
  EXPECT_TRUE(accept(level, bits(0x1p87F)));
  EXPECT_TRUE(accept(level, bits(0.75F)));
  EXPECT_EQ(level.level, kLongSums.slack);
  EXPECT_GT(std::ldexp(0x1p-20, level.exponent(8, kLongSums)), 1);  // not lost
  for (int step = 0; step < kLongSums.slack; ++step) EXPECT_TRUE(accept(level, bits(0.75F)));
  EXPECT_EQ(level.level, 0);
}

TEST(GridLevel, AcceptsOnlyGradientsWithinTheMargin) {
  GridLevel level{.level = 3};
  EXPECT_TRUE(accept(level, bits(std::nextafter(0x1p13F, 0.0F))));
  level.level = 3;
  EXPECT_FALSE(accept(level, bits(0x1p13F)));
  EXPECT_EQ(level.level, 14);
  EXPECT_TRUE(accept(level, bits(0x1p13F)));
}

TEST(GridLevel, LearnsNothingFromZeros) {
  GridLevel unknown;
  EXPECT_TRUE(accept(unknown, 0));
  EXPECT_FALSE(unknown.level);
  GridLevel known{.level = -5};
  EXPECT_TRUE(accept(known, 0));
  EXPECT_EQ(known.level, -5);
}

// The sum of all parts, each as large as the margin allows, has as many bits as it may have, and at most one less.
TEST(GridLevel, LeavesRoomForAllPartsAndWastesAtMostOneBit) {
  for (const SumBits& sums : {kLongSums, kShortSums}) {
    for (const int parts : {1, 2, 3, 7, 8, 9, 64, 1000, 65536}) {
      for (const float largest : {1.0F, 3e38F, 1e-30F, std::numeric_limits<float>::denorm_min()}) {
        GridLevel level;
        EXPECT_FALSE(level.accept(bits(largest), sums));
        const double limit = std::ldexp(1.0, level.level.value() + sums.margin);
        const double sum = std::ldexp(limit, level.exponent(parts, sums)) * parts;
        EXPECT_LE(sum, std::ldexp(1.0, sums.sum)) << parts << " parts, " << largest;
        EXPECT_GT(sum, std::ldexp(1.0, sums.sum - 1)) << parts << " parts, " << largest;
        EXPECT_LT(std::abs(level.exponent(parts, sums)), 900);
      }
    }
  }
}

TEST(GridLevel, OfShortSumsRisesByThreeBitsAtMost) {
  GridLevel level{.level = 3};
  EXPECT_TRUE(level.accept(bits(std::nextafter(0x1p6F, 0.0F)), kShortSums));
  level.level = 3;
  EXPECT_FALSE(level.accept(bits(0x1p6F), kShortSums));
  EXPECT_TRUE(level.accept(bits(0x1p6F), kShortSums));
  EXPECT_TRUE(level.accept(bits(0.75F), kShortSums));
  EXPECT_EQ(level.level, kShortSums.slack);
}

}  // namespace
}  // namespace tutti
