#include "watch/stall_judge.hpp"

#include "watch/ranks_at_work.hpp"

#include <gtest/gtest.h>

namespace tutti {
namespace {

using Kind = StallFinding::Kind;

constexpr double kTimeout = 10;

// A beat every tenth of a second of a clock of its own.
class Judged : public ::testing::Test {
 protected:
  StallFinding beat(bool on_time = true) {
    now_ += 100'000'000;
    return judge_.look({.now_ns = now_, .on_time = on_time, .timeout_seconds = kTimeout}, ranks_);
  }
  // The first finding within so long, and the seconds until then.
  std::pair<Kind, double> first_within(double seconds) {
    const std::int64_t begin = now_;
    while (static_cast<double>(now_ - begin) * 1e-9 < seconds) {
      if (const StallFinding finding = beat(); finding.kind != Kind::nothing) {
        return {finding.kind, static_cast<double>(now_ - begin) * 1e-9};
      }
    }
    return {Kind::nothing, seconds};
  }

  std::int64_t now_ = 0;
  std::vector<RankView> ranks_ = test::waiting_ranks(3);
  StallJudge judge_{0};
};

TEST_F(Judged, JobsThatStandStillAreWarnedOfOnceAndThenStuck) {
  beat();
  ranks_[1].state.phase = Phase::data;
  const auto [warned, half] = first_within(kTimeout);
  EXPECT_EQ(warned, Kind::late);
  EXPECT_NEAR(half, kTimeout / 2, 0.2);
  const auto [ended, rest] = first_within(kTimeout);
  EXPECT_EQ(ended, Kind::stuck);
  EXPECT_NEAR(half + rest, kTimeout, 0.2);
  EXPECT_EQ(beat().kind, Kind::stuck);  // for whoever has to act next
}

TEST_F(Judged, JobsGoOnAsLongAsAnyRankMoves) {
  for (int i = 0; i < 1000; ++i) {
    ranks_[0].state.signs += i % 40 == 0 ? 1 : 0;
    EXPECT_EQ(beat().kind, Kind::nothing);
  }
}

TEST_F(Judged, RanksThatComeAreToldToHaveBeenSlow) {
  beat();
  first_within(kTimeout);
  ++ranks_[2].state.done;
  const StallFinding finding = beat();
  EXPECT_EQ(finding.kind, Kind::moves);
  EXPECT_NEAR(finding.still_seconds, kTimeout / 2, 0.3);
  EXPECT_FALSE(finding.late.places.empty());
  EXPECT_EQ(beat().kind, Kind::nothing);
}

TEST_F(Judged, TimeBeginsAnewWhenTheWatchWasHeldUp) {
  beat();
  for (int i = 0; i < 5; ++i) {
    for (double waited = 0; waited < kTimeout * 0.4; waited += 0.1) EXPECT_EQ(beat().kind, Kind::nothing);
    now_ += static_cast<std::int64_t>(3600e9);  // suspended
    EXPECT_EQ(beat(false).kind, Kind::nothing);
  }
}

TEST_F(Judged, TimeStandsStillForADebugger) {
  beat();
  ranks_[1].state.activity = Activity::traced;
  EXPECT_EQ(first_within(10 * kTimeout).first, Kind::nothing);
}

TEST_F(Judged, SlowRanksHaveTenTimesAsLong) {
  beat();
  ranks_[0].state.phase = Phase::checkpoint;
  ranks_[0].state.done = ranks_[0].state.begun;
  ranks_[0].state.activity = Activity::computing;
  const auto [warned, first] = first_within(2 * kTimeout);
  EXPECT_EQ(warned, Kind::late);
  EXPECT_NEAR(first, kTimeout, 0.3);
  const auto [ended, rest] = first_within(10 * kTimeout);
  EXPECT_EQ(ended, Kind::stuck);
  EXPECT_NEAR(first + rest, 10 * kTimeout, 0.5);
}

TEST_F(Judged, JobsOfWhichNobodyIsLeftAreDone) {
  for (RankView& rank : ranks_) rank.state.end = RankEnd::left;
  EXPECT_EQ(first_within(10 * kTimeout).first, Kind::nothing);
}

}  // namespace
}  // namespace tutti
