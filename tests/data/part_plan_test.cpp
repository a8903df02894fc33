#include "tutti/data/part_plan.hpp"

#include "tutti/base/error.hpp"

#include <gtest/gtest.h>

#include <limits>
#include <string>

namespace tutti {
namespace {

TEST(PartPositions, AreTheFloorsOfTheDesign) {
  for (std::int64_t n = 0; n <= 40; ++n) {
    for (int parts = 1; parts <= 17; ++parts) {
      std::int64_t expected_begin = 0;
      for (int part = 0; part < parts; ++part) {
        const IndexRange range = part_positions(n, parts, part);
        EXPECT_EQ(range.begin, expected_begin);
        EXPECT_EQ(range.end, (part + 1) * n / parts);
        expected_begin = range.end;
      }
      EXPECT_EQ(expected_begin, n);
    }
  }
}

TEST(PartPositions, DoNotOverflowForTheLargestNumbers) {
  constexpr std::int64_t kMost = std::numeric_limits<std::int64_t>::max();
  constexpr int kMostParts = std::numeric_limits<int>::max();
  EXPECT_EQ(part_positions(kMost, kMostParts, kMostParts - 1).end, kMost);
  EXPECT_EQ(part_positions(kMost, 2, 0).end, kMost / 2);
}

TEST(PartPlan, GivesTheFirstRanksOnePartMore) {
  const PartPlan plan(8, 3);
  EXPECT_EQ(plan.parts_of(0), (IndexRange{0, 3}));
  EXPECT_EQ(plan.parts_of(1), (IndexRange{3, 6}));
  EXPECT_EQ(plan.parts_of(2), (IndexRange{6, 8}));
}

TEST(PartPlan, CoversAllPartsContiguouslyAndKnowsWhoPlaysEach) {
  for (int parts = 1; parts <= 20; ++parts) {
    for (int ranks = 1; ranks <= parts; ++ranks) {
      const PartPlan plan(parts, ranks);
      std::int64_t next = 0;
      for (int rank = 0; rank < ranks; ++rank) {
        const IndexRange own = plan.parts_of(rank);
        ASSERT_EQ(own.begin, next);
        ASSERT_GE(own.size(), 1);
        for (std::int64_t part = own.begin; part < own.end; ++part) {
          ASSERT_EQ(plan.rank_of(static_cast<int>(part)), rank);
        }
        next = own.end;
      }
      ASSERT_EQ(next, parts);
    }
  }
}

TEST(PartPlan, RefusesMoreRanksThanPartsNamingBoth) {
  try {
    const PartPlan plan(4, 5);
    FAIL() << "accepted";
  } catch (const Error& error) {
    EXPECT_EQ(error.source(), ErrorSource::usage);
    EXPECT_NE(std::string(error.what()).find("5 ranks cannot share 4 parts"), std::string::npos) << error.what();
  }
  EXPECT_THROW(PartPlan(0, 0), Error);
  EXPECT_THROW(PartPlan(3, 0), Error);
}

TEST(PartPlan, RefusesRanksAndPartsItDoesNotHave) {
  const PartPlan plan(4, 2);
  EXPECT_THROW(plan.parts_of(2), Error);
  EXPECT_THROW(plan.parts_of(-1), Error);
  EXPECT_THROW(plan.rank_of(4), Error);
  EXPECT_THROW(plan.rank_of(-1), Error);
}

}  // namespace
}  // namespace tutti
