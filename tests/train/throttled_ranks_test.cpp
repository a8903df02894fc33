#include "tutti/base/timing.hpp"

#include "support/mpi_world.hpp"
#include "train/part_balancer.hpp"
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

constexpr int kThrottledParts = 16;
constexpr int kRunSteps = 58;  // two measurements of the speeds, and some steps after each
constexpr int kFirstMeasurement = 6;
constexpr int kTimedSteps = 14;  // by then some steps have used the new map
constexpr int kThrottledSteps = 20;
constexpr double kPartSeconds = 0.02;

using Counts = std::vector<int>;

struct ThrottledRun {
  int ranks = 2;
  PartMapOptions map{};
  double speed = 1;  // of the last rank, while it is throttled
};

// Records the weights, the part map and the time of each step.
class StepRecorder : public RunObserver {
 public:
  void on_step(const StepProgress&) override {
    seconds_.push_back(step_.seconds());
    step_.restart();
    digests.push_back(trainer->weights_digest());
    maps.push_back(trainer->replica().balancer().map().parts_by_rank());
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

// Delays the steps that the balancer or this test times, so that their time is in proportion to the number of parts and
// the speed.
class Throttle : public PhaseListener {
 public:
  Throttle(const ThrottledRun& spec, bool is_slow, const StepRecorder& recorder)
      : spec_(spec), is_slow_(is_slow), recorder_(recorder) {}
  void on_begin(const StepPhase& at) override {
    const std::size_t done = recorder_.digests.size();
    if (at.phase != Phase::forward || !spec_.map.balanced || (done >= kTimedSteps && done < 50)) return;
    std::this_thread::sleep_for(
        std::chrono::duration<double>(kPartSeconds / (is_slow_ && done < kThrottledSteps ? spec_.speed : 1)));
  }

 private:
  const ThrottledRun& spec_;
  bool is_slow_;
  const StepRecorder& recorder_;
};

// Trains lenet on the first ranks of the test's world.
StepRecorder train_on(const ThrottledRun& spec, const DataPair& data) {
  const auto world = test_world().split(test_world().rank() < spec.ranks ? 0 : -1);
  StepRecorder recorder;
  if (world) {
    TrainerOptions options{.batch_size = 35, .num_parts = kThrottledParts};
    options.exchange.kind = Exchange::exact;
    options.part_map = spec.map;
    options.epochs = 1000;
    options.steps = kRunSteps;
    options.test_every_epochs = 0;
    RankStatus status;
    Throttle throttle(spec, world->rank() == spec.ranks - 1, recorder);
    status.add(throttle);
    RankRun run(*world, built_in_model("lenet"), data, options, &status);
    recorder.trainer = &run.trainer;
    run.trainer.run(recorder);
  }
  test_world().barrier();
  return recorder;
}

class ThrottledRanks : public testing::Test {
 protected:
  const OwnedData owned_ = open_small("glyphs");
  const StepRecorder even_ = train_on({.ranks = 2}, owned_.pair);
};

TEST_F(ThrottledRanks, ComputeFewerPartsWhileTheyAreSlowAndNoBitChanges) {
  for (const int ranks : {2, 4}) {
    for (const double speed : {0.5, 0.25}) {
      const StepRecorder run = train_on({.ranks = ranks, .map = {.balanced = true}, .speed = speed}, owned_.pair);
      if (test_world().rank() != 0) continue;
      fmt::print("{} ranks, one at speed {}: even map {:.1f} ms a step, auto {:.1f} ms, ideal split {:.1f} ms\n", ranks,
                 speed, run.median_milliseconds(1, kFirstMeasurement),
                 run.median_milliseconds(kFirstMeasurement + 1, kTimedSteps),
                 kThrottledParts * kPartSeconds * 1e3 / (ranks - 1 + speed));
      SCOPED_TRACE(testing::Message() << ranks << " ranks, speed " << speed << ", notes "
                                      << testing::PrintToString(run.notes));
      EXPECT_EQ(run.digests, even_.digests);
      const Counts even = PartMap(kThrottledParts, ranks).parts_by_rank();
      EXPECT_EQ(run.maps[kFirstMeasurement - 2], even);
      const double ideal = kThrottledParts * speed / (ranks - 1 + speed);
      EXPECT_NEAR(run.maps[kThrottledSteps - 1].back(), ideal, 1.5);
      EXPECT_LT(run.maps[kThrottledSteps - 1].back(), even.back());
      for (const int count : run.maps.back()) EXPECT_NEAR(count, even.front(), 1);
      ASSERT_EQ(run.notes.size(), 2u);
      EXPECT_TRUE(run.notes[0].starts_with("parts ")) << run.notes[0];
      EXPECT_NE(run.notes[0].find(" predicted, even map "), std::string::npos) << run.notes[0];
    }
  }
}

TEST_F(ThrottledRanks, HaveTheEvenMapWhereAllHaveTheSameSpeed) {
  const StepRecorder run = train_on({.ranks = 2, .map = {.balanced = true}}, owned_.pair);
  if (test_world().rank() != 0) return;
  EXPECT_EQ(run.digests, even_.digests);
  EXPECT_EQ(run.maps.back(), (Counts{8, 8}));
  EXPECT_TRUE(run.notes.empty());
}

TEST_F(ThrottledRanks, ComputeTheSameBitsWithAnExplicitMap) {
  const StepRecorder run = train_on({.ranks = 3, .map = {.parts_by_rank = {1, 12, 3}}}, owned_.pair);
  if (test_world().rank() != 0) return;
  EXPECT_EQ(run.digests, even_.digests);
}

}  // namespace
}  // namespace tutti
