#include "tutti/base/error.hpp"

#include "train/training_run.hpp"

#include <gtest/gtest.h>

#include <algorithm>

namespace tutti {
namespace {

TrainerOptions until(const EarlyStop& stop) {
  return {.batch_size = 16, .epochs = 20, .early_stop = stop, .checkpoint_at_end = true};
}

TEST(EarlyStop, ComesAtTheFirstEvaluationThatReachesAnAccuracy) {
  Recorder all;
  TrainingRun(until({}), {.model = small_resnet()}).trainer.run(all);
  ASSERT_EQ(all.epochs.size(), 20u);
  const auto reached =
      std::ranges::find_if(all.epochs, [](const EpochReport& epoch) { return epoch.test->correct >= 8; });
  ASSERT_NE(reached, all.epochs.end());

  TrainingRun run(until({.accuracy = 0.8}), {.model = small_resnet()});
  Recorder seen;
  EXPECT_EQ(run.trainer.run(seen), RunEnd::planned);
  EXPECT_EQ(std::ssize(seen.epochs), reached - all.epochs.begin() + 1);
  EXPECT_EQ(seen.epochs.back().weights_digest, reached->weights_digest);
  EXPECT_TRUE(run.trainer.early_end().ends_with(" reached --stop-at-accuracy 0.8")) << run.trainer.early_end();
  ASSERT_EQ(seen.checkpoints.size(), 1u);
  EXPECT_EQ(seen.checkpoints[0].progress.step, reached->step);

  TrainingRun again(until({.accuracy = 0.8}), {.model = small_resnet()});
  again.trainer.restore(seen.checkpoints[0]);
  again.trainer.run(seen);
  EXPECT_EQ(again.trainer.steps_done(), reached->step);
}

TEST(EarlyStop, ComesAfterSomeEvaluationsWithoutABetterAccuracyAlsoAcrossAResume) {
  TrainerOptions options = until({.patience = 3});
  options.learning_rate.base = 0;
  TrainingRun run(options);
  Recorder seen;
  run.trainer.run(seen);
  EXPECT_EQ(seen.epochs.size(), 4u);
  EXPECT_TRUE(run.trainer.early_end().starts_with("3 evaluations since the best test accuracy, 0."))
      << run.trainer.early_end();
  options.early_stop.patience = 5;
  TrainingRun more(options);
  more.trainer.restore(seen.checkpoints.at(0));
  more.trainer.run(seen);
  EXPECT_EQ(seen.epochs.size(), 6u);
}

TEST(EarlyStop, ComesAfterSomeEvaluationsWithoutAFiniteLoss) {
  const RunData data{.model = small_resnet()};
  TrainState state = TrainingRun(until({}), data).trainer.snapshot();
  const auto mean = std::ranges::find(state.statistics, "stem.norm/mean", &NamedArray::name);
  ASSERT_NE(mean, state.statistics.end());
  std::ranges::fill(mean->values, -3e38f);
  TrainingRun run(until({.patience = 2}), data);
  run.trainer.initialize_from(state);
  Recorder seen;
  run.trainer.run(seen);
  EXPECT_EQ(seen.epochs.size(), 2u);
  EXPECT_EQ(run.trainer.early_end(), "2 evaluations without a finite test loss (--patience 2)");
}

TEST(EarlyStop, NeedsEvaluations) {
  TrainerOptions options = until({.patience = 3});
  options.test_every_epochs = 0;
  EXPECT_THROW(TrainingRun{options}, Error);
}

}  // namespace
}  // namespace tutti
