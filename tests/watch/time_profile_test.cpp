#include "tutti/watch/time_profile.hpp"

#include "support/mpi_world.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <vector>

namespace tutti {
namespace {

constexpr std::int64_t kSecondNs = 1'000'000'000;

class TimeAccountTest : public testing::Test {
 protected:
  // Spans far longer than real time in the test.
  void spend(Phase phase, std::int64_t seconds) {
    time_profile.on_end({.at = {1, phase}, .begin_ns = now_, .end_ns = now_ + seconds * kSecondNs});
    now_ += seconds * kSecondNs;
  }
  // A step whose all-reduce takes two seconds after the last rank has arrived; it has the same length on all ranks.
  void step(Phase slow_phase, const std::vector<std::int64_t>& slow_seconds) {
    const std::int64_t mine = slow_seconds[static_cast<std::size_t>(rank)];
    spend(Phase::forward, 10);
    spend(slow_phase, mine);
    spend(Phase::waiting, 2 + *std::ranges::max_element(slow_seconds) - mine);
  }

  World& world = test_world();
  const int rank = world.rank();
  const bool alone = world.size() == 1;
  RankStatus rank_status;
  TimeProfile time_profile{world, rank_status};

 private:
  std::int64_t now_ = 0;
};

// Bounds the real time that the test itself takes.
constexpr double kReal = 0.9;

TEST_F(TimeAccountTest, SeparatesTransfersFromWaitingForTheLastRank) {
  std::vector<std::int64_t> seconds(static_cast<std::size_t>(world.size()), 1);
  seconds.back() = 31;
  step(Phase::data, seconds);
  seconds.back() = 1;
  seconds.front() = 101;
  step(Phase::checkpoint, seconds);
  spend(Phase::exchange, 5);
  const TimeReport report = time_profile.report();
  const int last = world.size() - 1;
  for (int each = 0; each <= last; ++each) {
    const TimeShares& shares = report.ranks.at(static_cast<std::size_t>(each));
    EXPECT_NEAR(shares[TimeShare::compute], 20, kReal);
    EXPECT_NEAR(shares[TimeShare::communication], 2 + 2 + 5, kReal);
    EXPECT_NEAR(shares[TimeShare::data], each == last ? 31 : 1, kReal);
    EXPECT_NEAR(shares[TimeShare::checkpoint], each == 0 ? 101 : 1, kReal);
    EXPECT_NEAR(shares[TimeShare::waiting], alone ? 0 : (each == last ? 0 : 30) + (each == 0 ? 0 : 100), kReal);
  }
  EXPECT_EQ(report.longest_wait.has_value(), !alone);
  if (alone) return;
  EXPECT_EQ(report.longest_wait->rank, 0);
  EXPECT_EQ(report.longest_wait->host, all_gather_text(world, world.host()).front());
  EXPECT_EQ(report.longest_wait->cause, TimeShare::checkpoint);
  EXPECT_NEAR(report.longest_wait->seconds, 100, kReal);
}

TEST_F(TimeAccountTest, ComparesWaitsWithinALongEpochThoughSomeRanksHaveMore) {
  constexpr int kSteps = 3000;
  for (int i = 0; i < kSteps; ++i) {
    std::vector<std::int64_t> seconds(static_cast<std::size_t>(world.size()), 1);
    seconds[static_cast<std::size_t>(i) % seconds.size()] = 4;
    // On some ranks the recorded collectives lag behind, as with asynchronous work, and catch up later.
    if (rank == 0 || i % 3 != 0) step(Phase::data, seconds);
    time_profile.count_step();
    if (rank != 0 && i % 3 == 2) {
      std::ranges::fill(seconds, 1);
      seconds[static_cast<std::size_t>(i - 2) % seconds.size()] = 4;
      step(Phase::data, seconds);
    }
  }
  const TimeReport report = time_profile.report();
  double waited = 0;
  for (const TimeShares& shares : report.ranks) {
    EXPECT_NEAR(shares.sum(), kSteps * (10.0 + 2 + 4), 2 * kReal);
    waited += shares[TimeShare::waiting];
  }
  EXPECT_GE(waited, -kReal);
}

TEST_F(TimeAccountTest, StartsAgainWithEveryReport) {
  spend(Phase::evaluation, 50);
  time_profile.report();
  spend(Phase::update, 7);
  const TimeReport report = time_profile.report();
  EXPECT_NEAR(report.ranks.front()[TimeShare::evaluation], 0, kReal);
  EXPECT_NEAR(report.seconds(), 7, kReal);
}

TEST_F(TimeAccountTest, PrintsTheTimeSharesInOneLine) {
  const TimeReport report{
      .ranks = {{.seconds = {1, 6, 1, 2, 0, 0, 0}}, {.seconds = {3, 6, 1, 0, 0, 0, 0}}},
      .longest_wait = LongestWait{.rank = 1, .host = "n1", .cause = TimeShare::data, .seconds = 2},
  };
  EXPECT_EQ(time_line(report),
            "time 10.0 s: data 20 %, compute 60 %, communication 10 %, waiting 10 % (2.0 s for rank 1 on n1: data), "
            "evaluation 0 %, checkpoint 0 %, other 0 %");
}

TimeReport two_ranks(double waiting, double data, const LongestWait& late) {
  return {.ranks = {{.seconds = {data, 6, 1, 2 * waiting, 0, 0, 0}}, {.seconds = {data, 6, 1, 0, 0, 0, 0}}},
          .longest_wait = late};
}

TEST(TimeReportTest, IsWorthALookWhereWaitingOrInputExceedATenth) {
  EXPECT_FALSE(is_notable(two_ranks(0.7, 0.7, {})));
  EXPECT_TRUE(is_notable(two_ranks(1, 0, {})));
  EXPECT_TRUE(is_notable(two_ranks(0, 1, {})));
}

TEST(TimeReportTest, OfAWholeRunNamesTheRankThatMostWasWaitedFor) {
  TimeProfileSum total;
  total.add(two_ranks(1, 0, {.rank = 1, .host = "n1", .cause = TimeShare::data, .seconds = 2}));
  total.add(two_ranks(1, 1, {.rank = 0, .host = "n0", .cause = TimeShare::compute, .seconds = 3}));
  total.add(two_ranks(1, 0, {.rank = 1, .host = "n1", .cause = TimeShare::data, .seconds = 2}));
  const TimeReport whole = total.report();
  EXPECT_DOUBLE_EQ(whole.seconds(), 3 * 9 + 1);
  EXPECT_DOUBLE_EQ(whole.mean()[TimeShare::waiting], 3);
  ASSERT_TRUE(whole.longest_wait);
  EXPECT_EQ(whole.longest_wait->rank, 1);
  EXPECT_DOUBLE_EQ(whole.longest_wait->seconds, 4);
}

}  // namespace
}  // namespace tutti
