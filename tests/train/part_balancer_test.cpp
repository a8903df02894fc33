#include "train/part_balancer.hpp"

#include "tutti/base/error.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <random>
#include <span>
#include <vector>

namespace tutti {
namespace {

using Counts = std::vector<int>;

TEST(PartMap, IsInProportionToSpeed) {
  EXPECT_EQ(assign_by_speed(16, {1, 2}).parts_by_rank(), (Counts{11, 5}));
  EXPECT_EQ(assign_by_speed(16, {4, 1}).parts_by_rank(), (Counts{3, 13}));
  EXPECT_EQ(assign_by_speed(16, {1, 1, 4, 1}).parts_by_rank(), (Counts{5, 5, 1, 5}));
  EXPECT_EQ(assign_by_speed(3, {1, 100, 1}).parts_by_rank(), (Counts{1, 1, 1})) << "every rank has a part";
}

TEST(PartMap, OfEqualRanksIsEven) {
  for (int ranks = 1; ranks <= 9; ++ranks) {
    for (int parts = ranks; parts <= 30; ++parts) {
      EXPECT_EQ(assign_by_speed(parts, SecondsPerPart(static_cast<std::size_t>(ranks), 0.1)), PartMap(parts, ranks));
    }
  }
}

double least_seconds(int parts, std::span<const double> seconds) {
  if (seconds.size() == 1) return parts * seconds[0];
  double least = std::numeric_limits<double>::infinity();
  for (int first = 1; first + std::ssize(seconds) - 1 <= parts; ++first) {
    least = std::min(least, std::max(first * seconds[0], least_seconds(parts - first, seconds.subspan(1))));
  }
  return least;
}

TEST(PartMap, HasTheLeastStepTimeOfAllMaps) {
  std::mt19937 random(3);
  for (int turn = 0; turn < 300; ++turn) {
    const int ranks = 1 + static_cast<int>(random() % 4);
    const int parts = ranks + static_cast<int>(random() % 12);
    SecondsPerPart seconds;
    for (int rank = 0; rank < ranks; ++rank) seconds.push_back(1 + static_cast<double>(random() % 40) / 7);
    const PartMap plan = assign_by_speed(parts, seconds);
    EXPECT_EQ(plan.num_parts(), parts);
    EXPECT_EQ(step_seconds(plan, seconds), least_seconds(parts, seconds));
  }
}

TEST(PartMap, ChangesOnlyForAGainOfMoreThanFivePercent) {
  const PartMap even(16, 2);
  EXPECT_EQ(reassign(even, {1, 1.04}), even);
  EXPECT_EQ(reassign(even, {1, 2}).parts_by_rank(), (Counts{11, 5}));
  EXPECT_EQ(reassign(PartMap(Counts{11, 5}), {1, 1}), even) << "a rank that is fast again";
  const PartMap fine(Counts{33, 31});
  EXPECT_EQ(reassign(fine, {1, 1}), fine);
}

TEST(PartMap, OfOneRankCanHaveAllPartsButOneOfEachOtherIfItIsBalanced) {
  EXPECT_EQ(max_parts_by_rank({}, 7, 3), (Counts{3, 2, 2}));
  EXPECT_EQ(max_parts_by_rank({.parts_by_rank = {1, 5, 1}}, 7, 3), (Counts{1, 5, 1}));
  EXPECT_EQ(max_parts_by_rank({.balanced = true}, 7, 3), (Counts{5, 5, 5}));
  EXPECT_EQ(max_parts_by_rank({.balanced = true}, 7, 1), (Counts{7}));
  EXPECT_THROW(max_parts_by_rank({.balanced = true}, 2, 3), Error);
}

TEST(PartMap, ReportsThePredictedGainAndWhetherSlowRanksAreWorthIt) {
  EXPECT_EQ(
      map_note(PartMap(Counts{6, 2}), {0.006, 0.015}),
      "parts 6,2 on 2 ranks: step 36.0 ms predicted, even map 60.0 ms; predicted without rank 1: 48.0 ms, so rank "
      "1 helps");
  EXPECT_EQ(
      map_note(PartMap(Counts{1, 6, 1}), {0.05, 0.006, 0.09}),
      "parts 1,6,1 on 3 ranks: step 90.0 ms predicted, even map 180.0 ms; predicted without ranks 0,2: 48.0 ms, so "
      "ranks 0,2 do not help");
  EXPECT_TRUE(is_better_without_some(PartMap(2, 2), {1, 4}));
  EXPECT_FALSE(is_better_without_some(PartMap(2, 2), {1, 2}));
  EXPECT_FALSE(is_better_without_some(PartMap(16, 4), {1, 1, 1, 1}));
}

}  // namespace
}  // namespace tutti
