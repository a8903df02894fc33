// Steps that are looked at on their way.

#include "support/mpi_world.hpp"
#include "train/course.hpp"
#include "train/rank_run.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <vector>

namespace tutti {
namespace {

constexpr const char* kData = "synthetic:203x1x16x16:5";

TrainerOptions options_of(Exchange kind) {
  TrainerOptions options = small_course(small_resnet(), {.kind = kind}).options;
  options.num_parts = test_world().size();
  options.bucket_bytes = 4096;
  return options;
}

std::vector<double> values_of(const Tensor& block) {
  const auto values = host_f32(block);
  return {values.begin(), values.end()};
}

TEST(StepWithStops, ComputesWhatAnyStepDoes) {
  const OwnedData data = open_small(kData);
  for (const Exchange kind : {Exchange::ring, Exchange::exact, Exchange::sharded, Exchange::central}) {
    RankRun stopped(test_world(), small_resnet(), data.pair, options_of(kind));
    RankRun plain(test_world(), small_resnet(), data.pair, options_of(kind));
    for (int step = 0; step < 3; ++step) {
      std::vector<StepStop> stops;
      stopped.trainer.step_with_stops([&](StepStop stop) { stops.push_back(stop); });
      plain.trainer.step();
      ASSERT_GE(stops.size(), 3U);
      EXPECT_EQ(stops.front(), StepStop::played);
      EXPECT_EQ(stops[stops.size() - 2], StepStop::exchanged);
      EXPECT_EQ(stops.back(), StepStop::updated);
    }
    EXPECT_EQ(stopped.trainer.weights_digest(), plain.trainer.weights_digest()) << name_of(kind);
    EXPECT_EQ(stopped.trainer.steps_done(), 3);
    EXPECT_EQ(stopped.trainer.epoch_sums(), plain.trainer.epoch_sums());
  }
}

TEST(StepWithStops, ShowsEachRanksGradientsAndThenTheirSum) {
  const OwnedData data = open_small(kData);
  RankRun run(test_world(), small_resnet(), data.pair, options_of(Exchange::ring));
  std::vector<double> here;
  std::vector<double> sum;
  run.trainer.step_with_stops([&](StepStop stop) {
    if (stop == StepStop::played) here = values_of(run.trainer.gradients());
    if (stop == StepStop::exchanged) sum = values_of(run.trainer.gradients());
  });
  const auto of_ranks = all_gather_figures(test_world(), here);
  double greatest_difference = 0;
  for (std::size_t i = 0; i < sum.size(); ++i) {
    double added = 0;
    for (const auto& of_rank : of_ranks) added += of_rank[i];
    greatest_difference = std::max(greatest_difference, std::abs(added - sum[i]));
  }
  EXPECT_LT(greatest_difference, 1e-6);
  for (std::size_t rank = 1; rank < of_ranks.size(); ++rank) EXPECT_NE(of_ranks[rank], of_ranks[0]);
}

TEST(StepWithStops, ShowsWeightsBeforeAndAfterTheirStep) {
  const OwnedData data = open_small(kData);
  TrainerOptions options = options_of(Exchange::ring);
  options.optimizer = {.momentum = 0.9};
  RankRun run(test_world(), small_resnet(), data.pair, options);
  std::vector<double> before;
  std::vector<double> gradients;
  run.trainer.step_with_stops([&](StepStop stop) {
    if (stop != StepStop::exchanged) return;
    before = values_of(run.trainer.weights());
    gradients = values_of(run.trainer.gradients());
  });
  const std::vector<double> after = values_of(run.trainer.weights());
  const auto trained = static_cast<std::size_t>(run.network.layout().trained_elements());
  double greatest_difference = 0;
  for (std::size_t i = 0; i < trained; ++i) {
    const double expected = before[i] - options.learning_rate.base * gradients[i];
    greatest_difference = std::max(greatest_difference, std::abs(expected - after[i]));
  }
  EXPECT_LT(greatest_difference, 1e-6);
  EXPECT_NE(before, after);
}

TEST(StepWithStops, KnowsTheSumsOfEachRanksOwnParts) {
  const OwnedData data = open_small(kData);
  RankRun run(test_world(), small_resnet(), data.pair, options_of(Exchange::ring));
  LossSums here;
  run.trainer.step_with_stops([&](StepStop stop) {
    if (stop == StepStop::played) here = run.trainer.rank_sums();
  });
  std::int64_t loss_steps = 0;
  std::int64_t samples = 0;
  for (const auto& sums :
       all_gather_figures(test_world(), {static_cast<double>(here.loss_steps), static_cast<double>(here.samples)})) {
    loss_steps += static_cast<std::int64_t>(sums[0]);
    samples += static_cast<std::int64_t>(sums[1]);
  }
  EXPECT_EQ(samples, 16);
  EXPECT_EQ(loss_steps, run.trainer.epoch_sums().loss_steps);
}

}  // namespace
}  // namespace tutti
