#include "tutti/base/timing.hpp"

#include "support/mpi_world.hpp"
#include "train/part_map.hpp"
#include "train/rank_run.hpp"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <string>
#include <thread>
#include <vector>

namespace tutti {
namespace {

constexpr int kParts = 16;
constexpr int kSteps = 58;  // two looks at the speeds, and what follows
constexpr int kFirstLook = 6;
constexpr int kTimedSteps = 14;  // by then the new map has been followed for a while
constexpr int kThrottledSteps = 20;
constexpr double kPartSeconds = 0.02;

using Counts = std::vector<int>;

struct Course {
  int ranks = 2;
  PartMapOptions map{};
  double speed = 1;  // of the last rank, while it is throttled
};

// What a run came to, step by step.
class Witness : public RunObserver {
 public:
  void on_step(const StepProgress&) override {
    seconds_.push_back(step_.seconds());
    step_.restart();
    digests.push_back(trainer->weights_digest());
    maps.push_back(trainer->replica().assignment().plan().parts_by_rank());
  }
  void on_note(const std::string& text) override { notes.push_back(text); }

  Trainer* trainer = nullptr;
  std::vector<std::uint64_t> digests;
  std::vector<Counts> maps;
  std::vector<std::string> notes;

  double median_milliseconds(int first, int last) const {
    std::vector<double> some(seconds_.begin() + first, seconds_.begin() + last);
    std::ranges::sort(some);
    return some[some.size() / 2] * 1e3;
  }

 private:
  Stopwatch step_;
  std::vector<double> seconds_;
};

// In the steps that are measured or timed, a part takes as long as on a device of its own: longer, by far, than it does
// here.
class Throttle : public PhaseListener {
 public:
  Throttle(const Course& course, bool is_slow, const Witness& witness)
      : course_(course), is_slow_(is_slow), witness_(witness) {}
  void on_begin(const StepPhase& at) override {
    const std::size_t done = witness_.digests.size();
    if (at.phase != Phase::forward || !course_.map.measured || (done >= kTimedSteps && done < 50)) return;
    std::this_thread::sleep_for(
        std::chrono::duration<double>(kPartSeconds / (is_slow_ && done < kThrottledSteps ? course_.speed : 1)));
  }

 private:
  const Course& course_;
  bool is_slow_;
  const Witness& witness_;
};

// Trains lenet on the first ranks of the test's world.
Witness train_on(const Course& course, const DataPair& data) {
  const auto world = test_world().split(test_world().rank() < course.ranks ? 0 : -1);
  Witness witness;
  if (world) {
    TrainerOptions options;
    options.batch_size = 35;
    options.num_parts = kParts;
    options.exchange.kind = Exchange::exact;
    options.part_map = course.map;
    options.epochs = 1000;
    options.steps = kSteps;
    options.test_every_epochs = 0;
    RankStatus status;
    Throttle throttle(course, world->rank() == course.ranks - 1, witness);
    status.add(throttle);
    RankRun run(*world, built_in_model("lenet"), data, options, &status);
    witness.trainer = &run.trainer;
    run.trainer.run(witness);
  }
  test_world().barrier();
  return witness;
}

class ThrottledRanks : public testing::Test {
 protected:
  const OwnedData owned_ = open_small("glyphs");
  const Witness even_ = train_on({.ranks = 2}, owned_.pair);
};

TEST_F(ThrottledRanks, PlayFewerPartsWhileTheyAreSlowAndNoBitChanges) {
  for (const int ranks : {2, 4}) {
    for (const double speed : {0.5, 0.25}) {
      const Witness run = train_on({.ranks = ranks, .map = {.measured = true}, .speed = speed}, owned_.pair);
      if (test_world().rank() != 0) continue;
      fmt::print("{} ranks, one at speed {}: even map {:.1f} ms a step, auto {:.1f} ms, ideal split {:.1f} ms\n", ranks,
                 speed, run.median_milliseconds(1, kFirstLook), run.median_milliseconds(kFirstLook + 1, kTimedSteps),
                 kParts * kPartSeconds * 1e3 / (ranks - 1 + speed));
      SCOPED_TRACE(testing::Message() << ranks << " ranks, speed " << speed << ", told "
                                      << testing::PrintToString(run.notes));
      EXPECT_EQ(run.digests, even_.digests);
      const Counts even = PartPlan(kParts, ranks).parts_by_rank();
      EXPECT_EQ(run.maps[kFirstLook - 2], even);
      const double ideal = kParts * speed / (ranks - 1 + speed);
      EXPECT_NEAR(run.maps[kThrottledSteps - 1].back(), ideal, 1.5);
      EXPECT_LT(run.maps[kThrottledSteps - 1].back(), even.back());
      for (const int count : run.maps.back()) EXPECT_NEAR(count, even.front(), 1);
      ASSERT_EQ(run.notes.size(), 2u);
      EXPECT_TRUE(run.notes[0].starts_with("parts ")) << run.notes[0];
      EXPECT_NE(run.notes[0].find(" predicted, even map "), std::string::npos) << run.notes[0];
    }
  }
}

TEST_F(ThrottledRanks, KeepTheEvenMapWhereAllAreLikeEachOther) {
  const Witness run = train_on({.ranks = 2, .map = {.measured = true}}, owned_.pair);
  if (test_world().rank() != 0) return;
  EXPECT_EQ(run.digests, even_.digests);
  EXPECT_EQ(run.maps.back(), (Counts{8, 8}));
  EXPECT_TRUE(run.notes.empty());
}

TEST_F(ThrottledRanks, ChangeNoBitByAMapMadeByHand) {
  const Witness run = train_on({.ranks = 3, .map = {.parts_by_rank = {1, 12, 3}}}, owned_.pair);
  if (test_world().rank() != 0) return;
  EXPECT_EQ(run.digests, even_.digests);
}

}  // namespace
}  // namespace tutti
