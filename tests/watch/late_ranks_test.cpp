#include "watch/late_ranks.hpp"

#include "watch/ranks_at_work.hpp"
#include "watch/stall_text.hpp"

#include <gtest/gtest.h>

namespace tutti {
namespace {

using test::waiting_ranks;
using Places = std::vector<std::size_t>;

TEST(LateRanks, AreThoseThatOthersWaitFor) {
  auto ranks = waiting_ranks(4);
  ranks[2].state = {.rank = 2, .phase = Phase::forward, .step = 17, .begun = 85, .done = 85, .quiet_seconds = 15};
  const LateRanks late = late_ranks(ranks);
  EXPECT_EQ(late.lateness, Lateness::absent);
  EXPECT_EQ(late.places, Places{2});
  EXPECT_EQ(late.waiting, 3);
  EXPECT_FALSE(late.is_slow);
  EXPECT_EQ(late_text(late, ranks, false),
            "rank 2 on n1 is late: in forward of step 17 for 15.0 s, not looked at; 3 ranks wait for it");
}

TEST(LateRanks, AreNotThoseWithSumsOnTheirWayOutsideOfAStep) {
  auto ranks = waiting_ranks(3);
  for (const Phase phase : {Phase::starting, Phase::reports, Phase::evaluation, Phase::checkpoint, Phase::ending}) {
    for (RankView& rank : ranks) rank.state.phase = phase;
    ranks[1].state.begun = ranks[1].state.done = 89;
    EXPECT_EQ(late_ranks(ranks).places, Places{1}) << name_of(phase);
  }
}

TEST(LateRanks, InAStepAreLateWithSumsOnTheirWayToo) {
  auto ranks = waiting_ranks(3);
  ranks[0].state.phase = Phase::backward;
  EXPECT_EQ(late_ranks(ranks).places, Places{0});
}

TEST(LateRanks, AreThoseWithTheFewestSumsWhenAllWait) {
  auto ranks = waiting_ranks(4);
  ranks[3].state.begun = 89;
  ranks[3].state.done = 88;
  EXPECT_EQ(late_ranks(ranks).lateness, Lateness::behind);
  EXPECT_EQ(late_ranks(ranks).places, Places{3});
  ranks[3] = ranks[0];
  EXPECT_EQ(late_ranks(ranks).lateness, Lateness::unknown);
}

TEST(LateRanks, StoppedCountBeforeAllThatOnlyWaitForThem) {
  auto ranks = waiting_ranks(4);
  ranks[1].state.activity = Activity::stopped;
  ranks[2].state.phase = Phase::update;
  EXPECT_EQ(late_ranks(ranks).lateness, Lateness::stopped);
  EXPECT_EQ(late_ranks(ranks).places, Places{1});
  EXPECT_NE(late_text(late_ranks(ranks), ranks, true).find("rank 1 on n1 is stuck: in waiting of step 17"),
            std::string::npos);
}

TEST(LateRanks, AreThoseOfASilentHost) {
  auto ranks = waiting_ranks(4);
  for (const std::size_t there : {1u, 3u}) {
    ranks[there].host = "n2";
    ranks[there].contact = Contact::lost;
    ranks[there].silent_seconds = 30;
  }
  const LateRanks late = late_ranks(ranks);
  EXPECT_EQ(late.lateness, Lateness::silent);
  EXPECT_EQ(late.places, (Places{1, 3}));
  const std::string told = late_text(late, ranks, true);
  EXPECT_NE(told.find("rank 1 on n2, rank 3 on n2 are out of reach: nothing was heard of n2 for 30.0 s"),
            std::string::npos)
      << told;
}

TEST(LateRanks, AreElsewhereWhenAllThatAreHeardWait) {
  auto ranks = waiting_ranks(2);
  ranks[1].contact = Contact::never;
  EXPECT_EQ(late_ranks(ranks).lateness, Lateness::unheard);
  EXPECT_TRUE(late_ranks(ranks).is_slow);
  ranks[0].state.phase = Phase::data;
  EXPECT_EQ(late_ranks(ranks).places, Places{0});
}

TEST(LateRanks, AreNeverThoseThatLeftInOrder) {
  auto ranks = waiting_ranks(3);
  ranks[0].state = {.rank = 0, .phase = Phase::ending, .end = RankEnd::left, .activity = Activity::gone};
  ranks[1].state.phase = Phase::ending;
  ranks[1].state.done = ranks[1].state.begun;
  EXPECT_EQ(late_ranks(ranks).places, Places{1});
  for (RankView& rank : ranks) rank.state.end = RankEnd::left;
  EXPECT_TRUE(late_ranks(ranks).places.empty());
}

TEST(LateRanks, AreThoseThatEndedOtherwise) {
  auto ranks = waiting_ranks(3);
  ranks[2].state.end = RankEnd::signaled;
  EXPECT_EQ(late_ranks(ranks).lateness, Lateness::gone);
  EXPECT_EQ(late_ranks(ranks).places, Places{2});
}

TEST(LateRanks, AreSlowWhileTheyWorkInAPhaseOfAnyLengthOrHaveNoCore) {
  auto ranks = waiting_ranks(2);
  for (const auto& [phase, activity, slow] :
       {std::tuple(Phase::checkpoint, Activity::using_disk, true),
        std::tuple(Phase::evaluation, Activity::computing, true),
        std::tuple(Phase::starting, Activity::waiting_for_disk, true),
        std::tuple(Phase::data, Activity::waiting_for_disk, true), std::tuple(Phase::data, Activity::idle, false),
        std::tuple(Phase::starting, Activity::idle, false), std::tuple(Phase::forward, Activity::computing, false),
        std::tuple(Phase::forward, Activity::waiting_for_core, true)}) {
    ranks[0].state = {.rank = 0, .phase = phase, .activity = activity};
    EXPECT_EQ(late_ranks(ranks).is_slow, slow) << name_of(phase) << ", " << name_of(activity);
  }
}

TEST(StallTable, SummarisesNeighboursAndKeepsLateRanks) {
  auto ranks = waiting_ranks(64);
  ranks[40].state.phase = Phase::forward;
  const std::string table = table_text(late_ranks(ranks), ranks);
  EXPECT_EQ(std::count(table.begin(), table.end(), '\n'), 3);
  EXPECT_NE(table.find("  0-39"), std::string::npos) << table;
  EXPECT_NE(table.find("41-63"), std::string::npos) << table;
  EXPECT_NE(table.find("<- late"), std::string::npos) << table;
}

TEST(StallTable, StaysShort) {
  auto ranks = waiting_ranks(200);
  for (std::size_t i = 0; i < ranks.size(); ++i) ranks[i].state.begun += i;
  ranks[150].state.phase = Phase::forward;
  const std::string table = table_text(late_ranks(ranks), ranks);
  EXPECT_EQ(std::count(table.begin(), table.end(), '\n'), 21);
  EXPECT_NE(table.find("and 180 more ranks"), std::string::npos) << table;
  EXPECT_NE(table.find("<- late"), std::string::npos) << table;
}

}  // namespace
}  // namespace tutti
