#include "watch/stragglers.hpp"

#include "watch/ranks_at_work.hpp"

#include <gtest/gtest.h>

namespace tutti {
namespace {

using test::waiting_ranks;
using Ranks = std::vector<std::size_t>;

TEST(Stragglers, AreThoseThatOthersWaitFor) {
  auto ranks = waiting_ranks(4);
  ranks[2].state = {.rank = 2, .phase = Phase::forward, .step = 17, .begun = 85, .done = 85, .quiet_seconds = 15};
  const Stragglers late = find_stragglers(ranks);
  EXPECT_EQ(late.lateness, Lateness::not_waiting);
  EXPECT_EQ(late.ranks, Ranks{2});
  EXPECT_EQ(late.waiting, 3);
  EXPECT_FALSE(late.is_slow);
  EXPECT_EQ(late_text(late, ranks, false),
            "rank 2 on n1 is late: in forward of step 17 for 15.0 s, not measured; 3 ranks wait for it");
}

TEST(Stragglers, AreNotThoseThatWaitForACollectiveOutsideOfAStep) {
  auto ranks = waiting_ranks(3);
  for (const Phase phase : {Phase::starting, Phase::reports, Phase::evaluation, Phase::checkpoint, Phase::ending}) {
    for (RankView& rank : ranks) rank.state.phase = phase;
    ranks[1].state.begun = ranks[1].state.done = 89;
    EXPECT_EQ(find_stragglers(ranks).ranks, Ranks{1}) << name_of(phase);
  }
}

TEST(Stragglers, InAStepMayHaveCollectivesInProgress) {
  auto ranks = waiting_ranks(3);
  ranks[0].state.phase = Phase::backward;
  EXPECT_EQ(find_stragglers(ranks).ranks, Ranks{0});
}

TEST(Stragglers, AreThoseWithTheFewestCollectivesWhenAllWait) {
  auto ranks = waiting_ranks(4);
  ranks[3].state.begun = 89;
  ranks[3].state.done = 88;
  EXPECT_EQ(find_stragglers(ranks).lateness, Lateness::fewer_collectives);
  EXPECT_EQ(find_stragglers(ranks).ranks, Ranks{3});
  ranks[3] = ranks[0];
  EXPECT_EQ(find_stragglers(ranks).lateness, Lateness::same_collective);
}

TEST(Stragglers, ThatAreStoppedTakePrecedenceOverRanksThatWait) {
  auto ranks = waiting_ranks(4);
  ranks[1].state.activity = Activity::stopped;
  ranks[2].state.phase = Phase::update;
  EXPECT_EQ(find_stragglers(ranks).lateness, Lateness::stopped);
  EXPECT_EQ(find_stragglers(ranks).ranks, Ranks{1});
  EXPECT_NE(late_text(find_stragglers(ranks), ranks, true).find("rank 1 on n1 is stuck: in waiting of step 17"),
            std::string::npos);
}

TEST(Stragglers, AreThoseOfASilentHost) {
  auto ranks = waiting_ranks(4);
  for (const std::size_t there : {1u, 3u}) {
    ranks[there].host = "n2";
    ranks[there].contact = Contact::lost;
    ranks[there].silent_seconds = 30;
  }
  const Stragglers late = find_stragglers(ranks);
  EXPECT_EQ(late.lateness, Lateness::lost_contact);
  EXPECT_EQ(late.ranks, (Ranks{1, 3}));
  const std::string text = late_text(late, ranks, true);
  EXPECT_NE(text.find("rank 1 on n2, rank 3 on n2 are unreachable: no message from n2 for 30.0 s"), std::string::npos)
      << text;
}

TEST(Minority, IsTheSideOfANetworkCutWithFewerRanksOrWithoutRankZero) {
  const auto sees_few = [](const std::vector<std::size_t>& lost, const std::vector<std::size_t>& never = {}) {
    auto ranks = waiting_ranks(4);
    for (const std::size_t rank : lost) ranks[rank].contact = Contact::lost;
    for (const std::size_t rank : never) ranks[rank].contact = Contact::never;
    return sees_minority(ranks);
  };
  EXPECT_FALSE(sees_few({}));
  EXPECT_FALSE(sees_few({3}));
  EXPECT_TRUE(sees_few({0, 1, 2}));
  EXPECT_FALSE(sees_few({2, 3})) << "the half with rank 0";
  EXPECT_TRUE(sees_few({0, 1}));
  EXPECT_FALSE(sees_few({}, {1, 2, 3})) << "the network passes no datagrams at all";
  EXPECT_TRUE(sees_few({0, 1}, {2})) << "hosts that nothing was heard from do not count";
}

TEST(Stragglers, AreTheUnheardWhenAllThatAreHeardWait) {
  auto ranks = waiting_ranks(2);
  ranks[1].contact = Contact::never;
  EXPECT_EQ(find_stragglers(ranks).lateness, Lateness::never_contacted);
  EXPECT_TRUE(find_stragglers(ranks).is_slow);
  ranks[0].state.phase = Phase::data;
  EXPECT_EQ(find_stragglers(ranks).ranks, Ranks{0});
}

TEST(Stragglers, AreNeverThoseThatFinished) {
  auto ranks = waiting_ranks(3);
  ranks[0].state = {.rank = 0, .phase = Phase::ending, .end = RankEnd::finished, .activity = Activity::gone};
  ranks[1].state.phase = Phase::ending;
  ranks[1].state.done = ranks[1].state.begun;
  EXPECT_EQ(find_stragglers(ranks).ranks, Ranks{1});
  for (RankView& rank : ranks) rank.state.end = RankEnd::finished;
  EXPECT_TRUE(find_stragglers(ranks).ranks.empty());
}

TEST(Stragglers, AreThoseThatEndedOtherwise) {
  auto ranks = waiting_ranks(3);
  ranks[2].state.end = RankEnd::signaled;
  EXPECT_EQ(find_stragglers(ranks).lateness, Lateness::gone);
  EXPECT_EQ(find_stragglers(ranks).ranks, Ranks{2});
}

TEST(Stragglers, AreSlowWhileTheyWorkInAPhaseOfUnboundedLengthOrHaveNoCore) {
  auto ranks = waiting_ranks(2);
  for (const auto& [phase, activity, slow] :
       {std::tuple(Phase::checkpoint, Activity::using_disk, true),
        std::tuple(Phase::evaluation, Activity::computing, true),
        std::tuple(Phase::starting, Activity::waiting_for_disk, true),
        std::tuple(Phase::data, Activity::waiting_for_disk, true), std::tuple(Phase::data, Activity::idle, false),
        std::tuple(Phase::starting, Activity::idle, false), std::tuple(Phase::forward, Activity::computing, false),
        std::tuple(Phase::forward, Activity::waiting_for_core, true)}) {
    ranks[0].state = {.rank = 0, .phase = phase, .activity = activity};
    EXPECT_EQ(find_stragglers(ranks).is_slow, slow) << name_of(phase) << ", " << name_of(activity);
  }
}

TEST(StallTable, SummarisesNeighborsAndKeepsLateRanks) {
  auto ranks = waiting_ranks(64);
  ranks[40].state.phase = Phase::forward;
  const std::string table = table_text(find_stragglers(ranks), ranks);
  EXPECT_EQ(std::count(table.begin(), table.end(), '\n'), 3);
  EXPECT_NE(table.find("  0-39"), std::string::npos) << table;
  EXPECT_NE(table.find("41-63"), std::string::npos) << table;
  EXPECT_NE(table.find("<- late"), std::string::npos) << table;
}

TEST(StallTable, StaysShort) {
  auto ranks = waiting_ranks(200);
  for (std::size_t i = 0; i < ranks.size(); ++i) ranks[i].state.begun += i;
  ranks[150].state.phase = Phase::forward;
  const std::string table = table_text(find_stragglers(ranks), ranks);
  EXPECT_EQ(std::count(table.begin(), table.end(), '\n'), 21);
  EXPECT_NE(table.find("and 180 more ranks"), std::string::npos) << table;
  EXPECT_NE(table.find("<- late"), std::string::npos) << table;
}

using Kind = StallFinding::Kind;

constexpr double kTimeout = 10;

// Simulates a tick every tenth of a second.
class Checked : public ::testing::Test {
 protected:
  StallFinding tick(bool on_time = true) {
    now_ += 100'000'000;
    return check_.update({.now_ns = now_, .on_time = on_time, .timeout_seconds = kTimeout}, ranks_);
  }
  // The first finding within this time, and the seconds until then.
  std::pair<Kind, double> first_within(double seconds) {
    const std::int64_t begin = now_;
    while (static_cast<double>(now_ - begin) * 1e-9 < seconds) {
      if (const StallFinding finding = tick(); finding.kind != Kind::nothing) {
        return {finding.kind, static_cast<double>(now_ - begin) * 1e-9};
      }
    }
    return {Kind::nothing, seconds};
  }

  std::int64_t now_ = 0;
  std::vector<RankView> ranks_ = test::waiting_ranks(3);
  StallCheck check_{0};
};

TEST_F(Checked, StalledJobsAreWarnedOfOnceAndThenStuck) {
  tick();
  ranks_[1].state.phase = Phase::data;
  const auto [warned, half] = first_within(kTimeout);
  EXPECT_EQ(warned, Kind::late);
  EXPECT_NEAR(half, kTimeout / 2, 0.2);
  const auto [ended, rest] = first_within(kTimeout);
  EXPECT_EQ(ended, Kind::stuck);
  EXPECT_NEAR(half + rest, kTimeout, 0.2);
  EXPECT_EQ(tick().kind, Kind::stuck);  // for the host's next leader
}

TEST_F(Checked, JobsContinueWhileAnyRankMakesProgress) {
  for (int i = 0; i < 1000; ++i) {
    ranks_[0].state.progress += i % 40 == 0 ? 1 : 0;
    EXPECT_EQ(tick().kind, Kind::nothing);
  }
}

TEST_F(Checked, RanksThatRecoverAreReportedAsSlow) {
  tick();
  first_within(kTimeout);
  ++ranks_[2].state.done;
  const StallFinding finding = tick();
  EXPECT_EQ(finding.kind, Kind::recovered);
  EXPECT_NEAR(finding.stalled_seconds, kTimeout / 2, 0.3);
  EXPECT_FALSE(finding.stragglers.ranks.empty());
  EXPECT_EQ(tick().kind, Kind::nothing);
}

TEST_F(Checked, TimeStartsAgainWhenTheWatchWasSuspended) {
  tick();
  for (int i = 0; i < 5; ++i) {
    for (double waited = 0; waited < kTimeout * 0.4; waited += 0.1) EXPECT_EQ(tick().kind, Kind::nothing);
    now_ += static_cast<std::int64_t>(3600e9);  // suspended
    EXPECT_EQ(tick(false).kind, Kind::nothing);
  }
}

TEST_F(Checked, TimeDoesNotCountUnderADebugger) {
  tick();
  ranks_[1].state.activity = Activity::in_debugger;
  EXPECT_EQ(first_within(10 * kTimeout).first, Kind::nothing);
}

TEST_F(Checked, SlowRanksHaveTenTimesTheTimeout) {
  tick();
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

TEST_F(Checked, JobsWhoseRanksHaveAllFinishedAreNotStalled) {
  for (RankView& rank : ranks_) rank.state.end = RankEnd::finished;
  EXPECT_EQ(first_within(10 * kTimeout).first, Kind::nothing);
}

}  // namespace
}  // namespace tutti
