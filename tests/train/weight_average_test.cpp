#include "train/weight_average.hpp"

#include "tutti/base/error.hpp"
#include "tutti/storage/train_state.hpp"

#include "support/thrown.hpp"
#include "train/training_run.hpp"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace tutti {
namespace {

TrainerOptions averaging(const AverageOptions& average) {
  TrainerOptions options;
  options.batch_size = 16;
  options.epochs = 2;  // of 7 steps each
  options.optimizer.momentum = 0;
  options.average = average;
  return options;
}

const RunData kResnet{.model = small_resnet()};

std::vector<NamedArray> weights_of(const TrainState& state) {
  std::vector<NamedArray> arrays = state.parameters;
  arrays.insert(arrays.end(), state.statistics.begin(), state.statistics.end());
  return arrays;
}

void expect_equal(const std::vector<NamedArray>& got, const std::vector<NamedArray>& expected,
                  const std::string& when) {
  ASSERT_EQ(got.size(), expected.size()) << when;
  for (std::size_t i = 0; i < got.size(); ++i) {
    EXPECT_EQ(got[i].name, expected[i].name) << when;
    EXPECT_EQ(got[i].values, expected[i].values) << got[i].name << ' ' << when;
  }
}

TEST(WeightAverage, IsThatOfAnAveragedModelOfPyTorchWithBuffers) {
  TrainingRun run(averaging({.decay = 0.75}), kResnet);
  std::vector<NamedArray> expected;
  for (int step = 1; step <= 5; ++step) {
    run.trainer.step();
    const TrainState state = run.trainer.snapshot();
    const std::vector<NamedArray> now = weights_of(state);
    if (step == 1) expected = now;
    for (std::size_t i = 0; step > 1 && i < now.size(); ++i) {
      for (std::size_t k = 0; k < now[i].values.size(); ++k) {
        expected[i].values[k] = 0.75f * expected[i].values[k] + 0.25f * now[i].values[k];
      }
    }
    expect_equal(state.averages, expected, "after step " + std::to_string(step));
  }
}

TEST(WeightAverage, IsEvaluatedAndLeavesTheRunAsItWas) {
  Recorder plain;
  TrainingRun(averaging({}), kResnet).trainer.run(plain);
  Recorder averaged;
  TrainingRun run(averaging({.decay = 0.75}), kResnet);
  run.trainer.run(averaged);
  EXPECT_EQ(averaged.epochs.back().weights_digest, plain.epochs.back().weights_digest);
  EXPECT_NE(averaged.epochs.back().test->loss(), plain.epochs.back().test->loss());
  TrainState state = run.trainer.snapshot();
  EXPECT_EQ(run.evaluate(state), *plain.epochs.back().test);
  use_averages(state);
  EXPECT_TRUE(state.averages.empty());
  EXPECT_EQ(run.evaluate(state), *averaged.epochs.back().test);
}

TEST(WeightAverage, IsPutBackWhenAnEvaluationFails) {
  TrainingRun run(averaging({.decay = 0.75}), kResnet);
  for (int step = 0; step < 3; ++step) run.trainer.step();
  const TrainState before = run.trainer.snapshot();
  EXPECT_THROW(run.trainer.replica().state().with_average([] { throw Error(ErrorSource::input, "a broken image"); }),
               Error);
  const TrainState after = run.trainer.snapshot();
  expect_equal(weights_of(after), weights_of(before), "the weights");
  expect_equal(after.averages, before.averages, "the averages");
}

TEST(WeightAverage, OfLookaheadBecomesTheWeights) {
  TrainingRun run(averaging({.decay = 0.9, .lookahead = 3}), kResnet);
  std::vector<NamedArray> before;
  for (int step = 1; step <= 9; ++step) {
    run.trainer.step();
    const TrainState state = run.trainer.snapshot();
    if (step % 3 == 0) {
      expect_equal(weights_of(state), state.averages, "after step " + std::to_string(step));
    } else if (step > 3) {
      expect_equal(state.averages, before, "after step " + std::to_string(step));
      EXPECT_NE(state.parameters[0].values, state.averages[0].values);
    }
    before = state.averages;
  }
}

TEST(WeightAverage, OfLookaheadHasADecayThatGrowsWithTheCubeOfTheSteps) {
  const AverageOptions options{.decay = 0.95, .lookahead = 5};
  EXPECT_EQ(share_in_average(options, 4, 0.01), 0);
  EXPECT_EQ(share_in_average(options, 5, 0.01), 1);
  EXPECT_NEAR(share_in_average(options, 250, 0.5), 1 - 0.95 * 0.95 * 0.95 * 0.95 * 0.95 / 8, 1e-15);
  EXPECT_EQ(share_in_average(options, 600, 1.2), share_in_average(options, 500, 1)) << "beyond the schedule";
  EXPECT_EQ(share_in_average({}, 5, 0.5), 0);
}

TEST(WeightAverage, RefusesInvalidOptions) {
  EXPECT_THROW(validate(AverageOptions{.decay = 1}), Error);
  EXPECT_THROW(validate(AverageOptions{.decay = -0.1}), Error);
  EXPECT_EQ(std::string(thrown_by([] { validate(AverageOptions{.lookahead = 5}); }).what()).substr(0, 25),
            "--lookahead 5 needs --ema");
}

TEST(WeightAverage, StartsAtTheWeightsThatARunStartsFrom) {
  TrainingRun first(averaging({}), kResnet);
  first.trainer.step();
  TrainingRun run(averaging({.decay = 0.9, .lookahead = 5}), kResnet);
  EXPECT_TRUE(run.trainer.initialize_from(first.trainer.snapshot()).empty());
  expect_equal(run.trainer.snapshot().averages, weights_of(first.trainer.snapshot()), "at the start");
}

}  // namespace
}  // namespace tutti
