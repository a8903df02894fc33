// Steps that are timed, and steps of the exchange alone.

#include "tutti/train/step_times.hpp"

#include "support/mpi_world.hpp"
#include "train/course.hpp"
#include "train/rank_run.hpp"

#include <gtest/gtest.h>

namespace tutti {
namespace {

constexpr const char* kData = "synthetic:203x1x16x16:5";
constexpr std::array kExchanges{Exchange::ring, Exchange::exact, Exchange::sharded, Exchange::central};

TrainerOptions options_of(Exchange kind) {
  TrainerOptions options = small_course(small_resnet(), {.kind = kind}).options;
  options.num_parts = test_world().size();
  options.bucket_bytes = 4096;
  return options;
}

TEST(TimedStep, ComputesWhatAnyStepDoes) {
  const OwnedData data = open_small(kData);
  for (const Exchange kind : kExchanges) {
    RankRun timed(test_world(), small_resnet(), data.pair, options_of(kind));
    RankRun plain(test_world(), small_resnet(), data.pair, options_of(kind));
    for (int step = 0; step < 3; ++step) {
      timed.trainer.timed_step();
      plain.trainer.step();
    }
    EXPECT_EQ(timed.trainer.weights_digest(), plain.trainer.weights_digest()) << name_of(kind);
    EXPECT_EQ(timed.trainer.steps_done(), 3);
    EXPECT_EQ(timed.trainer.epoch_sums(), plain.trainer.epoch_sums());
  }
}

TEST(TimedStep, TellsWhenEachBucketIsFinal) {
  const OwnedData data = open_small(kData);
  RankRun run(test_world(), small_resnet(), data.pair, options_of(Exchange::exact));
  run.trainer.timed_step();  // whose first play does not count
  const StepTimes times = run.trainer.timed_step();
  const auto ends = run.trainer.bucket_ends();
  ASSERT_GT(ends.size(), 1U);
  ASSERT_FALSE(times.compute.empty());
  EXPECT_EQ(times.compute.back().final_elements, ends.back());
  for (std::size_t i = 1; i < times.compute.size(); ++i) {
    EXPECT_GE(times.compute[i].final_elements, times.compute[i - 1].final_elements);
  }
  EXPECT_GT(times.compute_seconds(), 0);
  EXPECT_GT(times.update, 0);
}

TEST(PacedStep, SendsWhatAStepSendsAndCountsNothing) {
  const OwnedData data = open_small(kData);
  for (const Exchange kind : kExchanges) {
    RankRun run(test_world(), small_resnet(), data.pair, options_of(kind));
    run.trainer.step();
    StepTimes pace = run.trainer.timed_step();
    const std::uint64_t before = run.communicator->bytes_sent();
    run.trainer.timed_step();
    const std::uint64_t a_step = run.communicator->bytes_sent() - before;
    for (StepTimes::Stretch& stretch : pace.compute) stretch.seconds = 0.001;
    const StepTimes paced = run.trainer.paced_step(pace);
    EXPECT_EQ(run.communicator->bytes_sent() - before, 2 * a_step) << name_of(kind);
    EXPECT_EQ(run.trainer.steps_done(), 3);
    EXPECT_EQ(paced.compute.size(), pace.compute.size());
  }
}

}  // namespace
}  // namespace tutti
