#include "tutti/data/part_map.hpp"

#include "tutti/base/error.hpp"

#include "support/reports.hpp"
#include "support/thrown.hpp"

#include <gtest/gtest.h>

#include <limits>
#include <numeric>
#include <string>
#include <vector>

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
  constexpr int kMaxParts = std::numeric_limits<int>::max();
  EXPECT_EQ(part_positions(kMost, kMaxParts, kMaxParts - 1).end, kMost);
  EXPECT_EQ(part_positions(kMost, 2, 0).end, kMost / 2);
}

TEST(PartMap, GivesTheFirstRanksOnePartMore) {
  const PartMap plan(8, 3);
  EXPECT_EQ(plan.parts_of(0), (IndexRange{0, 3}));
  EXPECT_EQ(plan.parts_of(1), (IndexRange{3, 6}));
  EXPECT_EQ(plan.parts_of(2), (IndexRange{6, 8}));
}

void expect_consecutive_parts(const PartMap& plan) {
  std::int64_t next = 0;
  for (int rank = 0; rank < plan.num_ranks(); ++rank) {
    const IndexRange own = plan.parts_of(rank);
    ASSERT_EQ(own.begin, next);
    ASSERT_GE(own.size(), 1);
    for (std::int64_t part = own.begin; part < own.end; ++part) {
      ASSERT_EQ(plan.rank_of(static_cast<int>(part)), rank);
    }
    next = own.end;
  }
  ASSERT_EQ(next, plan.num_parts());
}

TEST(PartMap, CoversAllPartsContiguouslyAndKnowsEachPartsRank) {
  for (int parts = 1; parts <= 20; ++parts) {
    for (int ranks = 1; ranks <= parts; ++ranks) {
      const PartMap plan(parts, ranks);
      ASSERT_EQ(plan.num_parts(), parts);
      ASSERT_EQ(plan.num_ranks(), ranks);
      expect_consecutive_parts(plan);
      ASSERT_EQ(PartMap(plan.parts_by_rank()), plan);
    }
  }
}

TEST(PartMap, GivesEachRankTheRequestedCount) {
  for (const std::vector<int>& counts : {std::vector{5}, {3, 3, 2}, {1, 6, 1}, {1, 1, 1, 9}}) {
    const PartMap plan(counts);
    EXPECT_EQ(plan.num_parts(), std::reduce(counts.begin(), counts.end()));
    EXPECT_EQ(plan.parts_by_rank(), counts);
    expect_consecutive_parts(plan);
  }
  EXPECT_EQ(PartMap({3, 3, 2}), PartMap(8, 3));
  EXPECT_EQ(PartMap({1, 6, 1}).parts_of(1), (IndexRange{1, 7}));
}

TEST(PartMap, RefusesAListForOtherRanksOrParts) {
  EXPECT_EQ(PartMap::chosen({}, 8, 3), PartMap(8, 3));
  EXPECT_EQ(PartMap::chosen({1, 7}, 8, 2), PartMap(std::vector{1, 7}));
  for (const int ranks : {1, 2, 3}) {
    const Error error = thrown_by([&] { PartMap::chosen({3, 3}, ranks == 2 ? 8 : 6, ranks); });
    EXPECT_EQ(error.source(), ErrorSource::usage);
    EXPECT_NE(std::string(error.what()).find("--part-map 3,3 assigns 6 parts to 2 ranks"), std::string::npos);
  }
}

TEST(PartMap, RefusesRanksWithoutAPart) {
  const Error error = thrown_by([] { PartMap(std::vector{2, 0, 1}); });
  EXPECT_EQ(error.source(), ErrorSource::usage);
  EXPECT_NE(std::string(error.what()).find("rank 1 has 0 parts"), std::string::npos) << error.what();
  EXPECT_THROW(PartMap(std::vector{3, -1}), Error);
  EXPECT_THROW(PartMap(std::vector<int>{}), Error);
}

TEST(PartMap, RefusesMoreRanksThanPartsNamingBoth) {
  EXPECT_THAT(thrown_by([] { PartMap(4, 5); }), reports(ErrorSource::usage, "there are 4 parts for 5 ranks"));
  EXPECT_THROW(PartMap(0, 0), Error);
  EXPECT_THROW(PartMap(3, 0), Error);
}

TEST(PartMap, RefusesRanksAndPartsItDoesNotHave) {
  const PartMap plan(4, 2);
  EXPECT_THROW(plan.parts_of(2), Error);
  EXPECT_THROW(plan.parts_of(-1), Error);
  EXPECT_THROW(plan.rank_of(4), Error);
  EXPECT_THROW(plan.rank_of(-1), Error);
}

}  // namespace
}  // namespace tutti
