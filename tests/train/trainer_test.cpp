#include "tutti/train/trainer.hpp"

#include "tutti/base/error.hpp"
#include "tutti/storage/checkpoint_store.hpp"
#include "tutti/train/evaluation.hpp"

#include "support/reports.hpp"
#include "support/scratch_folder.hpp"
#include "support/thrown.hpp"
#include "train/training_run.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

namespace tutti {
namespace {

TrainerOptions small() { return {.batch_size = 16, .epochs = 2}; }

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

TEST(Trainer, EndedByStepsInsideAnEpochReportsThePartialEpoch) {
  TrainerOptions options = small();
  options.steps = 9;
  TrainingRun run(options);
  Recorder seen;
  run.trainer.run(seen);
  ASSERT_EQ(seen.epochs.size(), 2u);
  EXPECT_EQ(seen.epochs[1].train.samples, 32);
  EXPECT_TRUE(seen.epochs[1].test);
}

TEST(Trainer, KeepsFrozenParametersAndStatistics) {
  TrainerOptions options = small();
  options.optimizer.weight_decay = 0.1;
  TrainingRun run(options, {.model = small_resnet(), .frozen = {"stem.*", "block2.norm"}});
  const TrainState before = run.trainer.snapshot();
  Recorder seen;
  run.trainer.run(seen);
  const TrainState after = run.trainer.snapshot();
  for (const auto arrays : {&TrainState::parameters, &TrainState::statistics}) {
    for (std::size_t i = 0; i < (before.*arrays).size(); ++i) {
      const auto& [name, shape, values] = (before.*arrays)[i];
      EXPECT_EQ((after.*arrays)[i].values == values, name.starts_with("stem.") || name.starts_with("block2.norm/"))
          << name;
    }
  }
}

TEST(Trainer, RunsFewerStepsThanTheWarmUpOfItsPlan) {
  TrainerOptions options = small();
  options.learning_rate.base = 0.07;
  options.learning_rate.warmup_epochs = 1;
  options.steps = 3;
  TrainingRun run(options);
  Recorder seen;
  run.trainer.run(seen);
  ASSERT_EQ(seen.epochs.size(), 1u);
  EXPECT_DOUBLE_EQ(seen.epochs[0].learning_rate, 0.07 * 3 / 7);
}

TEST(Trainer, ReportsPartialEpochsThatAddUpToTheEpoch) {
  TrainerOptions options = small();
  options.epochs = 1;
  options.log_every_steps = 1;
  TrainingRun run(options);
  Recorder seen;
  run.trainer.run(seen);
  std::int64_t loss_quanta = 0;
  for (const IntervalReport& interval : seen.intervals) loss_quanta += interval.train.loss_quanta;
  EXPECT_EQ(seen.intervals.size(), 7u);
  EXPECT_EQ(loss_quanta, seen.epochs[0].train.loss_quanta);
}

TEST(Trainer, HasSumsThatDoNotDependOnTheWorkers) {
  // The first step starts from equal weights, so its gradients agree up to rounding.
  const auto first_loss = [](int parts) {
    TrainerOptions options = small();
    options.num_parts = parts;
    TrainingRun run(options);
    run.trainer.step();
    run.trainer.step();
    return epoch_sums(run.trainer).mean_loss();
  };
  const double whole = first_loss(1);
  EXPECT_NEAR(first_loss(3) / whole, 1, 1e-5);
  EXPECT_NEAR(first_loss(16) / whole, 1, 1e-5);
  EXPECT_NEAR(first_loss(40) / whole, 1, 1e-5);
}

TEST(Trainer, ResumesToTheSameDigest) {
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
  EXPECT_THAT(thrown_by([&] { run.trainer.restore(state); }),
              reports(ErrorSource::checkpoint, state.parameters[0].name));
  state.optimizer.clear();
  state.parameters[0].shape = run.trainer.snapshot().parameters[0].shape;
  EXPECT_THROW(run.trainer.restore(state), Error);
}

TEST(Trainer, RefusesImpossibleGridLevels) {
  TrainerOptions options;
  options.exchange.kind = Exchange::exact;
  TrainingRun run(options);
  run.trainer.step();
  for (const float level : {NAN, -149.0F, 129.0F, -INFINITY}) {
    TrainState state = run.trainer.snapshot();
    state.exchange.at(0).values[0] = level;
    EXPECT_THROW(run.trainer.restore(state), Error) << level;
  }
}

TEST(Trainer, ReportsTheSamplesThatRolloverLeavesAfterWholeEpochs) {
  TrainerOptions options = small();
  options.last_batch = LastBatch::rollover;
  RunObserver silent;
  TrainingRun whole(options);
  whole.trainer.run(silent);
  EXPECT_EQ(whole.trainer.samples_left_over(), 200 % 16);
  options.steps = 3;
  TrainingRun interval(options);
  interval.trainer.run(silent);
  EXPECT_EQ(interval.trainer.samples_left_over(), 0);
}

TEST(Trainer, ReportsPartialEpochsAcrossTheEndsOfEpochs) {
  TrainerOptions options = small();
  options.log_every_steps = 4;
  TrainingRun run(options);
  Recorder seen;
  run.trainer.run(seen);
  // Of 14 steps, 7 an epoch with 4 samples in the last: steps 1-4, 5-8 and 9-12.
  ASSERT_EQ(seen.intervals.size(), 3u);
  EXPECT_EQ(seen.intervals[0].train.samples, 64);
  EXPECT_EQ(seen.intervals[1].train.samples, 52);
  EXPECT_EQ(seen.intervals[2].train.samples, 64);
}

TEST(Trainer, RefusesABatchLargerThanAnEpoch) {
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

TEST(Trainer, ComputesPartsInParallelToTheSameBits) {
  for (const int parts : {1, 3, 5}) {
    TrainerOptions options = small();
    options.num_parts = parts;
    options.batch_size = 14;
    options.steps = 3;
    const auto train = [&](int workers) {
      options.max_workers = workers;
      // 300 test samples: two chunks.
      TrainingRun run(options, {.name = "synthetic:3000x1x8x8:3", .model = small_resnet()});
      EXPECT_EQ(run.trainer.workers(), std::min(parts, workers));
      Recorder recorder;
      run.trainer.run(recorder);
      const EpochReport& report = recorder.epochs.at(0);
      return std::tuple(run.trainer.weights_digest(), report.train, report.test.value());
    };
    const auto alone = train(1);
    for (const int workers : {2, 3}) EXPECT_EQ(train(workers), alone) << parts << " parts, " << workers << " workers";
  }
}

TEST(Trainer, ResumesFromAFileToTheSameBitsWithEveryOptimizer) {
  const std::vector<OptimizerOptions> optimizers{
      {.kind = OptimizerKind::sgd, .weight_decay = 0.01, .nesterov = true, .clip_norm = 0.5},
      {.kind = OptimizerKind::adamw, .weight_decay = 0.01, .exempts_norms_and_biases = true},
      {.kind = OptimizerKind::lars, .weight_decay = 0.01, .exempts_norms_and_biases = true}};
  for (const OptimizerOptions& optimizer : optimizers) {
    TrainerOptions options = small();
    options.optimizer = optimizer;
    options.label_smoothing = 0.1;
    options.digest_every_steps = 1;
    const RunData data{.model = small_resnet()};
    TrainingRun whole(options, data);
    Recorder unbroken;
    whole.trainer.run(unbroken);

    const ScratchFolder folder;
    const auto world = make_solo_world();
    const CheckpointStore store(folder.path());
    TrainingRun interval(options, data);
    for (int step = 0; step < 5; ++step) interval.trainer.step();
    store.save(interval.trainer.snapshot());
    TrainingRun rest(options, data);
    rest.trainer.restore(store.newest(*world, Log{}).value().state);
    Recorder resumed;
    rest.trainer.run(resumed);
    ASSERT_EQ(resumed.digests.size(), 9u);
    for (std::size_t i = 0; i < resumed.digests.size(); ++i) {
      const DigestReport& expected = unbroken.digests[5 + i];
      EXPECT_EQ(resumed.digests[i].weights, expected.weights) << name_of(optimizer.kind) << ", step " << expected.step;
      EXPECT_EQ(resumed.digests[i].optimizer, expected.optimizer)
          << name_of(optimizer.kind) << ", step " << expected.step;
      EXPECT_EQ(resumed.digests[i].statistics, expected.statistics)
          << name_of(optimizer.kind) << ", step " << expected.step;
    }
  }
}

TEST(Trainer, ReportsTheDigestOfStatisticsOnlyWhereThereAreAny) {
  TrainerOptions options = small();
  options.digest_every_steps = 7;
  Recorder plain;
  TrainingRun(options).trainer.run(plain);
  EXPECT_FALSE(plain.digests.at(0).statistics);
  Recorder normed;
  TrainingRun(options, {.model = small_resnet()}).trainer.run(normed);
  ASSERT_TRUE(normed.digests.at(0).statistics);
  EXPECT_NE(normed.digests.at(0).statistics, normed.digests.at(1).statistics);
}

TEST(Trainer, SmoothsTheLabelsOfTheTrainingLossOnly) {
  const auto first_losses = [](double smoothing) {
    TrainerOptions options = small();
    options.label_smoothing = smoothing;
    TrainingRun run(options);
    const double test = run.evaluate().mean_loss();
    run.trainer.step();
    return std::pair(epoch_sums(run.trainer).mean_loss(), test);
  };
  EXPECT_NE(first_losses(0.2).first, first_losses(0).first);
  EXPECT_EQ(first_losses(0.2).second, first_losses(0).second);
}

// The mean is weighted, as PyTorch's: a factor of all weights cancels out, in gradients but not in the sum of losses.
TEST(Trainer, DividesGradientsByTheWeightsOfTheLabelsOfTheWholeBatch) {
  const auto step = [](const std::vector<double>& weights, int parts) {
    TrainerOptions options = small();
    options.class_weights = weights;
    options.num_parts = parts;
    TrainingRun run(options);
    run.trainer.step();
    return std::pair(run.trainer.snapshot().parameters, epoch_sums(run.trainer).loss());
  };
  const auto plain = step({}, 1);
  const auto scaled = step({4, 4, 4}, 1);
  const auto weighed = step({1, 3, 0.5}, 1);
  const auto in_parts = step({1, 3, 0.5}, 5);
  EXPECT_NEAR(scaled.second, 4 * plain.second, 1e-5);
  EXPECT_NEAR(in_parts.second, weighed.second, 1e-5);
  for (std::size_t i = 0; i < plain.first.size(); ++i) {
    EXPECT_EQ(scaled.first[i].values, plain.first[i].values);
    EXPECT_NE(weighed.first[i].values, plain.first[i].values);
    for (std::size_t k = 0; k < plain.first[i].values.size(); ++k) {
      EXPECT_NEAR(in_parts.first[i].values[k], weighed.first[i].values[k], 1e-6);
    }
  }
}

// Weights of 0 give every class the same probability, so that each weighted mean is ln 3.
TEST(Trainer, ReportsMeanLossesThatAreWeightedByClassWhicheverSamplesWereSeen) {
  TrainerOptions options = small();
  options.class_weights = {0.25, 2, 1};
  options.learning_rate.base = 0;
  options.epochs = 1;
  options.log_every_steps = 1;
  options.checkpoint_every_steps = 3;
  for (const Shuffle shuffle : {Shuffle::global, Shuffle::balanced}) {
    options.shuffle = shuffle;
    options.last_batch = LastBatch::discard;
    TrainingRun run(options);
    TrainState zeros = run.trainer.snapshot();
    for (NamedArray& array : zeros.parameters) std::ranges::fill(array.values, 0.0f);
    run.trainer.initialize_from(zeros);
    Recorder seen;
    run.trainer.run(seen);
    for (const IntervalReport& each : seen.intervals) EXPECT_NEAR(each.train.mean_loss(), std::log(3), 1e-5);
    EXPECT_NEAR(seen.epochs.at(0).train.mean_loss(), std::log(3), 1e-5);
    TrainingRun rest(options);
    rest.trainer.restore(seen.checkpoints.at(0));
    Recorder after;
    rest.trainer.run(after);
    EXPECT_EQ(after.epochs.at(0).train, seen.epochs.at(0).train);
    EXPECT_NE(after.epochs.at(0).train.weight, static_cast<double>(after.epochs.at(0).train.samples));
  }
}

// With any number of parts, the first layer's mean is that of the whole batch.
TEST(Trainer, HasTheRunningStatisticsOfTheWholeBatchAlsoWithEmptyParts) {
  const auto mean_after_a_step = [](int parts) {
    TrainerOptions options = small();
    options.batch_size = 5;
    options.num_parts = parts;
    TrainingRun run(options, {.model = small_resnet()});
    run.trainer.step();
    const auto statistics = run.trainer.snapshot().statistics;
    const auto mean = std::ranges::find(statistics, "stem.norm/mean", &NamedArray::name);
    return mean == statistics.end() ? std::vector<float>{} : mean->values;
  };
  const std::vector<float> whole = mean_after_a_step(1);
  ASSERT_EQ(whole.size(), 8u);
  EXPECT_GT(std::abs(whole[0]), 1e-4);
  for (const int parts : {2, 5, 8}) {
    const std::vector<float> shared = mean_after_a_step(parts);
    for (std::size_t i = 0; i < whole.size(); ++i) EXPECT_NEAR(shared[i], whole[i], 1e-6) << parts << " parts";
  }
}

TEST(Evaluation, OfACheckpointIsThatOfTheRun) {
  TrainerOptions options = small();
  options.num_parts = 3;
  const std::string name = "synthetic:5000x1x8x8:3";
  options.steps = 3;
  TrainingRun run(options, {.name = name, .model = small_resnet()});
  Recorder recorder;
  run.trainer.run(recorder);
  const LossSums expected = recorder.epochs.at(0).test.value();

  const auto backend = make_cpu_backend();
  const auto communicator = make_solo_communicator();
  const OwnedData data = open_small(name);
  const Network network(small_resnet(), data.pair.test->info().image, 3);
  const TrainState state = run.trainer.snapshot();
  for (const int workers : {1, 2, 7}) {
    EXPECT_EQ(evaluate({.backend = *backend,
                        .communicator = *communicator,
                        .network = network,
                        .data = *data.pair.test,
                        .recipe = options.recipe,
                        .max_workers = workers},
                       state),
              expected);
  }
}

}  // namespace
}  // namespace tutti
