#include "tutti/watch/whereabouts.hpp"

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

TEST(Whereabouts, PublishesWhereTheRankIs) {
  Whereabouts whereabouts;
  PlaceSlot slot;
  whereabouts.begin_step(3, Phase::data);
  whereabouts.publish_in(slot);
  EXPECT_EQ(slot.phase, Phase::data);
  whereabouts.enter(Phase::backward);
  EXPECT_EQ(slot.step, 3);
  EXPECT_EQ(slot.phase, Phase::backward);
}

TEST(Whereabouts, ShowsAnySignOfProgress) {
  Whereabouts whereabouts;
  PlaceSlot slot;
  whereabouts.publish_in(slot);
  for (const auto& advance : {+[](Whereabouts& w) { w.sign(); }, +[](Whereabouts& w) { w.enter(Phase::data); },
                              +[](Whereabouts& w) { w.enter(Phase::data); }}) {
    const std::uint64_t before = slot.signs;
    advance(whereabouts);
    EXPECT_GT(slot.signs, before);
  }
}

TEST(Whereabouts, TellsListenersOfStaysWithoutGaps) {
  Whereabouts whereabouts;
  Notes notes;
  whereabouts.begin_step(1, Phase::data);
  whereabouts.add(notes);
  whereabouts.enter(Phase::forward);
  whereabouts.begin_step(2, Phase::data);
  whereabouts.remove(notes);
  whereabouts.enter(Phase::forward);
  ASSERT_EQ(notes.ended.size(), 2u);
  EXPECT_EQ(notes.ended[0].place.phase, Phase::data);
  EXPECT_EQ(notes.ended[1].place.step, 1);
  EXPECT_EQ(notes.ended[0].end_ns, notes.ended[1].begin_ns);
  ASSERT_EQ(notes.begun.size(), 2u);
  EXPECT_EQ(notes.begun[1].step, 2);
}

}  // namespace
}  // namespace tutti
