#include "tutti/comm/communicator.hpp"

#include "support/mpi_world.hpp"
#include "train/training_run.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <memory>
#include <vector>

namespace tutti {
namespace {

constexpr int kParts = 8;

struct Curve {
  std::vector<double> losses;  // of each step
  LossSums evaluation;
  LossSums training;
};

// Trains the network on the first `ranks` ranks of the test's world; the others wait. The curve is rank 0's.
Curve train_on(int ranks, const Dataset& data, const Dataset& test, const std::string& model, TrainerOptions options,
               int steps) {
  const auto world = test_world().split(test_world().rank() < ranks ? 0 : -1);
  Curve curve;
  if (world) {
    const auto backend = make_cpu_backend();
    const auto communicator = make_mpi_ring_communicator(*world, {.helper_thread = false});
    const Network network(built_in_model(model), data.info().image, data.info().classes);
    Trainer trainer(
        {.backend = *backend, .communicator = *communicator, .network = network, .train = data, .test = &test}, options,
        {});
    curve.evaluation = trainer.evaluate();
    LossSums before;
    for (int step = 0; step < steps; ++step) {
      trainer.step();
      const LossSums now = trainer.epoch_sums();
      curve.losses.push_back(static_cast<double>(now.loss_steps - before.loss_steps) / LossSums::kLossScale /
                             static_cast<double>(now.samples - before.samples));
      before = now;
    }
    curve.training = before;
  }
  test_world().barrier();
  return curve;
}

TrainerOptions eight_parts(std::int64_t batch_size) {
  TrainerOptions options;
  options.batch_size = batch_size;
  options.num_parts = kParts;
  options.learning_rate.base = 0.01;
  options.optimizer.momentum = 0;
  options.epochs = 1000;
  return options;
}

TEST(Ranks, AnyNumberOfThemFollowsTheSameLossCurve) {
  const OwnedData owned = open_small("glyphs");
  const DataPair& data = owned.pair;
  const TrainerOptions options = eight_parts(64);
  constexpr int kSteps = 50;
  const Curve alone = train_on(1, *data.train, *data.test, "lenet", options, kSteps);
  for (const int ranks : {2, 3, 4, 5, 8}) {
    const Curve curve = train_on(ranks, *data.train, *data.test, "lenet", options, kSteps);
    if (test_world().rank() != 0) continue;
    for (std::size_t step = 0; step < kSteps; ++step) {
      EXPECT_NEAR(curve.losses[step] / alone.losses[step], 1, 1e-5) << ranks << " ranks, step " << step;
    }
    EXPECT_EQ(curve.training.samples, alone.training.samples);
  }
}

TEST(Ranks, PartsWithoutSamplesContributeNothing) {
  const OwnedData owned = open_small("synthetic:61x1x8x8:3");
  const DataPair& data = owned.pair;
  const TrainerOptions options = eight_parts(5);
  constexpr int kSteps = 30;
  const Curve alone = train_on(1, *data.train, *data.test, "mlp", options, kSteps);
  for (const int ranks : {3, 8}) {
    const Curve curve = train_on(ranks, *data.train, *data.test, "mlp", options, kSteps);
    if (test_world().rank() != 0) continue;
    for (std::size_t step = 0; step < kSteps; ++step) {
      EXPECT_NEAR(curve.losses[step] / alone.losses[step], 1, 1e-5) << ranks << " ranks, step " << step;
    }
  }
}

TEST(Ranks, EvaluateEverySampleExactlyOnce) {
  // 700 test samples: chunks of 256, 256 and 188, fewer than the ranks.
  const OwnedData owned = open_small("synthetic:7000x1x8x8:3");
  const DataPair& data = owned.pair;
  const TrainerOptions options = eight_parts(32);
  const Curve alone = train_on(1, *data.train, *data.test, "mlp", options, 0);
  for (const int ranks : {2, 3, 5, 8}) {
    const Curve curve = train_on(ranks, *data.train, *data.test, "mlp", options, 0);
    if (test_world().rank() != 0) continue;
    EXPECT_EQ(curve.evaluation.samples, 700);
    EXPECT_EQ(curve.evaluation, alone.evaluation) << ranks << " ranks";
  }
}

}  // namespace
}  // namespace tutti
