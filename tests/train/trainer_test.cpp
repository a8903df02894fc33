#include "tutti/train/trainer.hpp"

#include "tutti/base/error.hpp"

#include "train/training_run.hpp"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace tutti {
namespace {

TrainerOptions small() {
  TrainerOptions options;
  options.batch_size = 16;
  options.epochs = 2;
  return options;
}

TEST(Trainer, ReportsEveryEpochWithItsSums) {
  TrainingRun run(small());
  Recorder seen;
  run.trainer.run(seen);
  EXPECT_EQ(run.trainer.planned_steps(), 14);
  EXPECT_EQ(seen.steps.size(), 14u);
  ASSERT_EQ(seen.epochs.size(), 2u);
  EXPECT_EQ(seen.epochs[1].epoch, 2);
  EXPECT_EQ(seen.epochs[1].step, 14);
  EXPECT_EQ(seen.epochs[0].train.samples, 100);
  ASSERT_TRUE(seen.epochs[0].test);
  EXPECT_EQ(seen.epochs[0].test->samples, 10);
  EXPECT_LT(seen.epochs[1].train.mean_loss(), seen.epochs[0].train.mean_loss());
  EXPECT_EQ(seen.epochs[1].weights_digest, run.trainer.weights_digest());
}

TEST(Trainer, EndedByStepsInsideAnEpochReportsTheStretch) {
  TrainerOptions options = small();
  options.steps = 9;
  TrainingRun run(options);
  Recorder seen;
  run.trainer.run(seen);
  ASSERT_EQ(seen.epochs.size(), 2u);
  EXPECT_EQ(seen.epochs[1].train.samples, 32);
  EXPECT_TRUE(seen.epochs[1].test);
}

TEST(Trainer, StretchesAddUpToTheEpoch) {
  TrainerOptions options = small();
  options.epochs = 1;
  options.log_every_steps = 1;
  TrainingRun run(options);
  Recorder seen;
  run.trainer.run(seen);
  std::int64_t loss_steps = 0;
  for (const StretchReport& stretch : seen.stretches) loss_steps += stretch.train.loss_steps;
  EXPECT_EQ(seen.stretches.size(), 7u);
  EXPECT_EQ(loss_steps, seen.epochs[0].train.loss_steps);
}

TEST(Trainer, SumsDoNotDependOnHowTheRankPlaysItsParts) {
  // The first step starts from equal weights, so its gradients agree up to rounding.
  const auto first_loss = [](int parts) {
    TrainerOptions options = small();
    options.num_parts = parts;
    TrainingRun run(options);
    run.trainer.step();
    run.trainer.step();
    return run.trainer.epoch_sums().mean_loss();
  };
  const double whole = first_loss(1);
  EXPECT_NEAR(first_loss(3) / whole, 1, 1e-5);
  EXPECT_NEAR(first_loss(16) / whole, 1, 1e-5);
  EXPECT_NEAR(first_loss(40) / whole, 1, 1e-5);
}

TEST(Trainer, RestoredGoesOnToTheSameDigest) {
  TrainerOptions options = small();
  options.last_batch = LastBatch::rollover;
  options.epochs = 3;
  options.checkpoint_every_steps = 4;
  TrainingRun whole(options);
  Recorder seen;
  whole.trainer.run(seen);
  ASSERT_GE(seen.checkpoints.size(), 4u);
  for (const TrainState& state : seen.checkpoints) {
    TrainingRun rest(options);
    rest.trainer.restore(state);
    Recorder ignored;
    rest.trainer.run(ignored);
    EXPECT_EQ(rest.trainer.weights_digest(), whole.trainer.weights_digest()) << "from step " << state.progress.step;
  }
}

TEST(Trainer, RefusesACheckpointOfAnotherNetworkAndNamesTheTensor) {
  TrainingRun run(small());
  TrainState state = run.trainer.snapshot();
  state.parameters[0].shape = Shape{3, 3};
  try {
    run.trainer.restore(state);
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.source(), ErrorSource::checkpoint);
    EXPECT_NE(std::string(error.what()).find(state.parameters[0].name), std::string::npos) << error.what();
  }
  state.optimizer.clear();
  state.parameters[0].shape = run.trainer.snapshot().parameters[0].shape;
  EXPECT_THROW(run.trainer.restore(state), Error);
}

TEST(Trainer, TellsWhatRolloverLeavesOverAfterWholeEpochs) {
  TrainerOptions options = small();
  options.last_batch = LastBatch::rollover;
  RunObserver silent;
  TrainingRun whole(options);
  whole.trainer.run(silent);
  EXPECT_EQ(whole.trainer.samples_left_over(), 200 % 16);
  options.steps = 3;
  TrainingRun stretch(options);
  stretch.trainer.run(silent);
  EXPECT_EQ(stretch.trainer.samples_left_over(), 0);
}

TEST(Trainer, StretchesGoOnOverTheEndsOfEpochs) {
  TrainerOptions options = small();
  options.log_every_steps = 4;
  TrainingRun run(options);
  Recorder seen;
  run.trainer.run(seen);
  // Of 14 steps, 7 an epoch with 4 samples in the last: steps 1-4, 5-8 and 9-12.
  ASSERT_EQ(seen.stretches.size(), 3u);
  EXPECT_EQ(seen.stretches[0].train.samples, 64);
  EXPECT_EQ(seen.stretches[1].train.samples, 52);
  EXPECT_EQ(seen.stretches[2].train.samples, 64);
}

TEST(Trainer, RefusesABatchThatNoEpochFills) {
  TrainerOptions options = small();
  options.batch_size = 101;
  options.last_batch = LastBatch::discard;
  EXPECT_THROW(TrainingRun run(options), Error);
}

TEST(Trainer, RepeatsItsDigestsBitForBit) {
  TrainerOptions options = small();
  options.digest_every_steps = 1;
  const auto digests = [&] {
    TrainingRun run(options);
    Recorder seen;
    run.trainer.run(seen);
    return seen.digests;
  };
  const auto once = digests();
  const auto again = digests();
  ASSERT_EQ(once.size(), 14u);
  for (std::size_t i = 0; i < once.size(); ++i) {
    EXPECT_EQ(once[i].weights, again[i].weights);
    EXPECT_EQ(once[i].gradients, again[i].gradients);
    EXPECT_EQ(once[i].optimizer, again[i].optimizer);
  }
  EXPECT_NE(once[0].weights, once[1].weights);
}

}  // namespace
}  // namespace tutti
