#include "tutti/base/digest.hpp"

#include "support/mpi_world.hpp"
#include "train/rank_run.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <span>
#include <string>
#include <vector>

namespace tutti {
namespace {

constexpr int kParts = 8;

struct RanksRun {
  int ranks = 1;
  NetworkSpec model;
  int steps = 0;
};

struct Curve {
  std::vector<double> losses;  // of each step
  LossSums evaluation;
  LossSums training;
  std::vector<std::string> statistics;  // of each rank, as a digest
};

// Trains the network on the first ranks of the test's world; the others wait. The curve is rank 0's.
Curve train_on(const RanksRun& spec, const DataPair& data, const TrainerOptions& options) {
  const auto world = test_world().split(test_world().rank() < spec.ranks ? 0 : -1);
  Curve curve;
  if (world) {
    RankRun run(*world, spec.model, data, options);
    Trainer& trainer = run.trainer;
    curve.evaluation = evaluate({.backend = *run.backend,
                                 .communicator = *run.communicator,
                                 .network = run.network,
                                 .data = *data.test,
                                 .recipe = options.recipe},
                                trainer.snapshot());
    LossSums before;
    for (int step = 0; step < spec.steps; ++step) {
      trainer.step();
      const LossSums now = epoch_sums(trainer);
      curve.losses.push_back(static_cast<double>(now.loss_quanta - before.loss_quanta) / LossSums::kLossScale /
                             static_cast<double>(now.samples - before.samples));
      before = now;
    }
    curve.training = before;
    std::string statistics;
    for (const NamedArray& array : trainer.snapshot().statistics) {
      statistics += digest_text(digest(array.name, std::span(array.values)));
    }
    curve.statistics = all_gather_text(*world, statistics);
  }
  test_world().barrier();
  return curve;
}

TrainerOptions eight_parts(std::int64_t batch_size) {
  TrainerOptions options{.batch_size = batch_size, .num_parts = kParts};
  options.learning_rate.base = 0.01;
  options.optimizer.momentum = 0;
  options.epochs = 1000;
  return options;
}

TEST(Ranks, InAnyNumberHaveTheSameLossCurve) {
  const OwnedData owned = open_small("glyphs");
  const DataPair& data = owned.pair;
  const TrainerOptions options = eight_parts(64);
  constexpr int kSteps = 30;
  const Curve alone = train_on({1, built_in_model("lenet"), kSteps}, data, options);
  for (const int ranks : {2, 3, 8}) {
    const Curve curve = train_on({ranks, built_in_model("lenet"), kSteps}, data, options);
    if (test_world().rank() != 0) continue;
    for (std::size_t step = 0; step < kSteps; ++step) {
      // Sums in another order are rounded differently, and tiled convolutions amplify that by 2 compared with direct
      // ones.
      EXPECT_NEAR(curve.losses[step] / alone.losses[step], 1, 4e-5) << ranks << " ranks, step " << step;
    }
    EXPECT_EQ(curve.training.samples, alone.training.samples);
  }
}

TEST(Ranks, AddNothingForPartsWithoutSamples) {
  const OwnedData owned = open_small("synthetic:61x1x8x8:3");
  const DataPair& data = owned.pair;
  const TrainerOptions options = eight_parts(5);
  constexpr int kSteps = 30;
  const Curve alone = train_on({1, built_in_model("mlp"), kSteps}, data, options);
  for (const int ranks : {3, 8}) {
    const Curve curve = train_on({ranks, built_in_model("mlp"), kSteps}, data, options);
    if (test_world().rank() != 0) continue;
    for (std::size_t step = 0; step < kSteps; ++step) {
      EXPECT_NEAR(curve.losses[step] / alone.losses[step], 1, 1e-5) << ranks << " ranks, step " << step;
    }
  }
}

TEST(Ranks, EvaluateEverySampleExactlyOnce) {
  // 700 test samples: 15 chunks of 44, and one of 40.
  const OwnedData owned = open_small("synthetic:7000x1x8x8:3");
  const DataPair& data = owned.pair;
  const TrainerOptions options = eight_parts(32);
  const Curve alone = train_on({1, built_in_model("mlp"), 0}, data, options);
  for (const int ranks : {2, 3, 5, 8}) {
    const Curve curve = train_on({ranks, built_in_model("mlp"), 0}, data, options);
    if (test_world().rank() != 0) continue;
    EXPECT_EQ(curve.evaluation.samples, 700);
    EXPECT_EQ(curve.evaluation, alone.evaluation) << ranks << " ranks";
  }
}

TEST(Ranks, OfAResidualNetworkHaveTheSameCurveAndStatistics) {
  const OwnedData owned = open_small("glyphs");
  TrainerOptions options = eight_parts(64);
  options.num_parts = 4;
  constexpr int kSteps = 6;
  const Curve alone = train_on({1, small_resnet(), kSteps}, owned.pair, options);
  for (const int ranks : {2, 3, 4}) {
    const Curve curve = train_on({ranks, small_resnet(), kSteps}, owned.pair, options);
    if (test_world().rank() != 0) continue;
    for (std::size_t step = 0; step < kSteps; ++step) {
      EXPECT_NEAR(curve.losses[step] / alone.losses[step], 1, 1e-5) << ranks << " ranks, step " << step;
    }
    EXPECT_EQ(curve.training.samples, alone.training.samples);
    // Before the first step all weights are equal, and so must be every sum.
    EXPECT_EQ(curve.losses[0], alone.losses[0]);
    EXPECT_EQ(curve.evaluation, alone.evaluation);
    ASSERT_EQ(curve.statistics.size(), static_cast<std::size_t>(ranks));
    EXPECT_FALSE(curve.statistics[0].empty());
    for (const std::string& theirs : curve.statistics) EXPECT_EQ(theirs, curve.statistics[0]);
  }
}

}  // namespace
}  // namespace tutti
