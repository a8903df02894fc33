// Steps with timed phases.

#include "tutti/train/replica.hpp"

#include "support/mpi_world.hpp"
#include "train/rank_run.hpp"
#include "train/run_spec.hpp"

#include <gtest/gtest.h>

namespace tutti {
namespace {

constexpr const char* kTimedData = "synthetic:203x1x16x16:5";
constexpr std::array kExchanges{Exchange::ring, Exchange::exact, Exchange::sharded, Exchange::central};

TrainerOptions options_of(Exchange kind) {
  TrainerOptions options = small_run(small_resnet(), {.kind = kind}).options;
  options.num_parts = test_world().size();
  options.bucket_bytes = 4096;
  return options;
}

TEST(TimedStep, ComputesTheSameAsAnyStep) {
  const OwnedData data = open_small(kTimedData);
  for (const Exchange kind : kExchanges) {
    RankRun timed(test_world(), small_resnet(), data.pair, options_of(kind));
    RankRun plain(test_world(), small_resnet(), data.pair, options_of(kind));
    for (int step = 0; step < 3; ++step) {
      StepTimes times;
      timed.trainer.replica().step({.step = step, .updates = step, .learning_rate = 0.05, .times = &times});
      plain.trainer.step();
    }
    EXPECT_EQ(timed.trainer.weights_digest(), plain.trainer.weights_digest()) << name_of(kind);
    EXPECT_EQ(epoch_sums(timed.trainer), epoch_sums(plain.trainer));
  }
}

TEST(TimedStep, ReportsWhenEachBucketIsFinal) {
  const OwnedData data = open_small(kTimedData);
  RankRun run(test_world(), small_resnet(), data.pair, options_of(Exchange::exact));
  StepTimes times;
  for (int step = 0; step < 2; ++step) {  // the exact exchange computes the first one twice
    times = {};
    run.trainer.replica().step({.step = step, .updates = step, .learning_rate = 0.05, .times = &times});
  }
  const auto ends = run.trainer.replica().state().ownership().bucket_ends();
  ASSERT_GT(ends.size(), 1U);
  ASSERT_FALSE(times.compute.empty());
  EXPECT_EQ(times.compute.back().ready_elements, ends.back());
  for (std::size_t i = 1; i < times.compute.size(); ++i) {
    EXPECT_GE(times.compute[i].ready_elements, times.compute[i - 1].ready_elements);
  }
  EXPECT_GT(times.compute_seconds(), 0);
  EXPECT_GT(times.update, 0);
}

}  // namespace
}  // namespace tutti
