#include "tutti/watch/rank_status.hpp"

#include <gtest/gtest.h>

#include <vector>

namespace tutti {
namespace {

class Notes : public PhaseListener {
 public:
  void on_end(const PhaseSpan& span) override { ended.push_back(span); }
  void on_begin(const StepPhase& at) override { begun.push_back(at); }

  std::vector<PhaseSpan> ended;
  std::vector<StepPhase> begun;
};

TEST(RankStatus, PublishesWhereTheRankIs) {
  RankStatus rank_status;
  StatusSlot slot;
  rank_status.begin_step(3, Phase::data);
  rank_status.publish_in(slot);
  EXPECT_EQ(slot.phase, Phase::data);
  rank_status.enter(Phase::backward);
  EXPECT_EQ(slot.step, 3);
  EXPECT_EQ(slot.phase, Phase::backward);
}

TEST(RankStatus, ShowsAnySignOfProgress) {
  RankStatus rank_status;
  StatusSlot slot;
  rank_status.publish_in(slot);
  for (const auto& advance : {+[](RankStatus& w) { w.note_progress(); }, +[](RankStatus& w) { w.enter(Phase::data); },
                              +[](RankStatus& w) { w.enter(Phase::data); }}) {
    const std::uint64_t before = slot.progress;
    advance(rank_status);
    EXPECT_GT(slot.progress, before);
  }
}

TEST(RankStatus, TellsListenersOfStaysWithoutGaps) {
  RankStatus rank_status;
  Notes notes;
  rank_status.begin_step(1, Phase::data);
  rank_status.add(notes);
  rank_status.enter(Phase::forward);
  rank_status.begin_step(2, Phase::data);
  rank_status.remove(notes);
  rank_status.enter(Phase::forward);
  ASSERT_EQ(notes.ended.size(), 2u);
  EXPECT_EQ(notes.ended[0].at.phase, Phase::data);
  EXPECT_EQ(notes.ended[1].at.step, 1);
  EXPECT_EQ(notes.ended[0].end_ns, notes.ended[1].begin_ns);
  ASSERT_EQ(notes.begun.size(), 2u);
  EXPECT_EQ(notes.begun[1].step, 2);
}

}  // namespace
}  // namespace tutti
