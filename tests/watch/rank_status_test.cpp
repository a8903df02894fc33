#include "tutti/watch/rank_status.hpp"

#include <gtest/gtest.h>

#include <vector>

namespace tutti {
namespace {

class PhaseRecorder : public PhaseListener {
 public:
  void on_end(const PhaseSpan& span) override { ended.push_back(span); }
  void on_begin(const StepPhase& at) override { begun.push_back(at); }

  std::vector<PhaseSpan> ended;
  std::vector<StepPhase> begun;
};

TEST(RankStatus, PublishesTheRanksPhase) {
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

TEST(RankStatus, ReportsPhaseSpansWithoutGaps) {
  RankStatus rank_status;
  PhaseRecorder recorder;
  rank_status.begin_step(1, Phase::data);
  rank_status.add(recorder);
  rank_status.enter(Phase::forward);
  rank_status.begin_step(2, Phase::data);
  rank_status.remove(recorder);
  rank_status.enter(Phase::forward);
  ASSERT_EQ(recorder.ended.size(), 2u);
  EXPECT_EQ(recorder.ended[0].at.phase, Phase::data);
  EXPECT_EQ(recorder.ended[1].at.step, 1);
  EXPECT_EQ(recorder.ended[0].end_ns, recorder.ended[1].begin_ns);
  ASSERT_EQ(recorder.begun.size(), 2u);
  EXPECT_EQ(recorder.begun[1].step, 2);
}

}  // namespace
}  // namespace tutti
