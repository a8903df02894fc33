#include "tutti/watch/rank_status.hpp"

#include <gtest/gtest.h>

#include <vector>

namespace tutti {
namespace {

class Notes : public PlaceListener {
 public:
  void on_end(const Stay& stay) override { ended.push_back(stay); }
  void on_begin(const Place& place) override { begun.push_back(place); }

  std::vector<Stay> ended;
  std::vector<Place> begun;
};

TEST(RankStatus, PublishesWhereTheRankIs) {
  RankStatus rank_status;
  PlaceSlot slot;
  rank_status.begin_step(3, Phase::data);
  rank_status.publish_in(slot);
  EXPECT_EQ(slot.phase, Phase::data);
  rank_status.enter(Phase::backward);
  EXPECT_EQ(slot.step, 3);
  EXPECT_EQ(slot.phase, Phase::backward);
}

TEST(RankStatus, ShowsAnySignOfProgress) {
  RankStatus rank_status;
  PlaceSlot slot;
  rank_status.publish_in(slot);
  for (const auto& advance : {+[](RankStatus& w) { w.sign(); }, +[](RankStatus& w) { w.enter(Phase::data); },
                              +[](RankStatus& w) { w.enter(Phase::data); }}) {
    const std::uint64_t before = slot.signs;
    advance(rank_status);
    EXPECT_GT(slot.signs, before);
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
  EXPECT_EQ(notes.ended[0].place.phase, Phase::data);
  EXPECT_EQ(notes.ended[1].place.step, 1);
  EXPECT_EQ(notes.ended[0].end_ns, notes.ended[1].begin_ns);
  ASSERT_EQ(notes.begun.size(), 2u);
  EXPECT_EQ(notes.begun[1].step, 2);
}

}  // namespace
}  // namespace tutti
