// Gradients that are sent in bf16 or, by the exact exchange, as 32-bit integers.

#include "comm/summed_values.hpp"
#include "support/mpi_world.hpp"
#include "train/exchange.hpp"
#include "train/rank_run.hpp"
#include "train/run_spec.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <span>
#include <vector>

namespace tutti {
namespace {

// The bytes that this rank sends in 10 steps.
std::uint64_t bytes_of_steps(const ExchangeOptions& exchange) {
  const OwnedData data = open_small("synthetic:640x1x28x28:10");
  RankRun run(test_world(), built_in_model("lenet"), data.pair, small_run({}, exchange).options);
  run.trainer.step();
  run.trainer.synchronize();
  const std::uint64_t before = run.communicator->bytes_sent();
  for (int step = 0; step < 10; ++step) run.trainer.step();
  run.trainer.synchronize();
  return run.communicator->bytes_sent() - before;
}

TEST(Bf16Gradients, HaveHalfTheBytes) {
  const Network network(built_in_model("lenet"), Shape{1, 28, 28}, 10);
  const auto steps_elements = static_cast<std::uint64_t>(10 * network.layout().block_elements());
  const std::uint64_t in_fp32 = bytes_of_steps({});
  EXPECT_EQ(in_fp32 - bytes_of_steps({.wire = Wire::bf16}), 2 * steps_elements);
  EXPECT_LT(in_fp32, 4 * steps_elements + 10 * 100) << "a step's check for finite values";
}

// Apart from the largest gradients of each tensor, which all ranks gather.
TEST(ShortExactSums, HaveTheBytesOfARing) {
  const Network network(built_in_model("lenet"), Shape{1, 28, 28}, 10);
  const auto steps_elements = static_cast<std::uint64_t>(10 * network.layout().block_elements());
  const std::uint64_t by_ring = bytes_of_steps({});
  const std::uint64_t in_64_bits = bytes_of_steps({.kind = Exchange::exact, .wire = Wire::int64});
  const std::uint64_t in_32_bits = bytes_of_steps({.kind = Exchange::exact});
  EXPECT_EQ(in_64_bits - in_32_bits, 2 * steps_elements);
  EXPECT_LE(in_32_bits, by_ring + 10 * 4 * network.layout().slices().size());
}

double loss_of_first_epoch(const ExchangeOptions& exchange) {
  const OwnedData data = open_small("synthetic:640x1x28x28:10");
  TrainerOptions options = small_run({}, exchange).options;
  options.epochs = 2;
  options.steps = 0;
  RankRun run(test_world(), built_in_model("lenet"), data.pair, options);
  Recorder seen;
  run.trainer.run(seen);
  const double loss = seen.epochs[0].train.mean_loss();
  EXPECT_LT(seen.epochs[1].train.mean_loss(), loss / 2);
  return loss;
}

TEST(Bf16Gradients, TrainAsThoseInFp32) {
  const double in_fp32 = loss_of_first_epoch({});
  const double in_bf16 = loss_of_first_epoch({.wire = Wire::bf16});
  EXPECT_NE(in_bf16, in_fp32);
  EXPECT_NEAR(in_bf16, in_fp32, 0.02 * in_fp32);
}

TEST(ShortExactSums, TrainAsLongOnes) {
  const double in_64_bits = loss_of_first_epoch({.kind = Exchange::exact, .wire = Wire::int64});
  const double in_32_bits = loss_of_first_epoch({.kind = Exchange::exact});
  EXPECT_NE(in_32_bits, in_64_bits);
  EXPECT_NEAR(in_32_bits, in_64_bits, 0.005 * in_64_bits);
}

// Every rank rounds its values, and all but one round a partial sum.
TEST(Bf16Gradients, AreSumsWithinTheirRoundingErrors) {
  World& world = test_world();
  ParameterLayout layout;
  layout.add("dense/weight", ParameterKind::weight, Shape{4999});
  layout.add("norm/mean", ParameterKind::mean, Shape{333});
  const auto backend = make_cpu_backend();
  const auto communicator = make_mpi_communicator(world, {});
  const Ownership ownership(Owners::all, layout, make_buckets(layout, 1 << 20), {world.rank(), world.size()});
  const OwnedTensor gradients(*communicator, layout.block_elements(), ElementType::f32);
  const std::vector<float> mine = rough_values(layout.block_elements(), world.rank());
  std::ranges::copy(mine, host_f32(gradients.values).begin());

  GradientExchange exchange(
      *communicator, ownership,
      {.gradients = gradients.values, .in_bf16 = layout.trained_elements(), .backend = backend.get()});
  IdleStream stream;
  exchange.start_ready_buckets(layout.block_elements(), stream);
  exchange.finish(stream);

  const std::span<const float> sums = host_f32(gradients.values);
  for (const std::vector<float>& theirs : all_gather_values<float>(world, sums)) {
    EXPECT_TRUE(std::ranges::equal(theirs, sums));
  }
  const auto values_of_ranks = all_gather_values<float>(world, mine);
  double largest_error = 0;  // relative to its bound
  for (std::size_t i = 0; i < sums.size(); ++i) {
    double sum = 0;
    double magnitude = 0;
    for (const std::vector<float>& values : values_of_ranks) {
      sum += values[i];
      magnitude += std::abs(values[i]);
    }
    const bool is_trained = i < static_cast<std::size_t>(layout.trained_elements());
    const double unit = is_trained ? 0x1p-8 : 0x1p-24;
    const double bound = world.size() * unit * magnitude * (1 + world.size() * unit);
    ASSERT_LE(std::abs(sums[i] - sum), bound) << i;
    if (is_trained && bound > 0) largest_error = std::max(largest_error, std::abs(sums[i] - sum) / bound);
  }
  EXPECT_GT(largest_error, 0.1) << "they were rounded";
}

}  // namespace
}  // namespace tutti
