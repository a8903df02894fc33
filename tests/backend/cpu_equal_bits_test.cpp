// Our own convolutions, linear layers and pools give the same bits with all instruction sets. This program also runs
// with those of older processors, and must come to the same digests.
#include "tutti/base/bf16.hpp"
#include "tutti/base/digest.hpp"

#include "backend/single_layer.hpp"

#include <gtest/gtest.h>

#include <cfloat>
#include <map>

namespace tutti::testing_support {
namespace {

using Digests = std::map<std::string, std::string>;

constexpr Precision kPrecisions[] = {Precision::fp32, Precision::bf16};

// The output and all gradients of a chain of layers.
std::uint64_t digest_of_chain(Device& device, const NetworkCase& network) {
  const NetworkWeights weights(device, network);
  NetworkPlan plan(device, network, weights);
  const auto input = random_floats(network.sample.batch_of(network.batch).elements(), "values");
  const auto output = plan.forward(input);
  std::uint64_t sum = digest(network.name + "output", output);
  const auto gradients = plan.backward(random_floats(std::ssize(output), "gradient"));
  for (const auto& gradient : gradients) sum += digest(network.name + "gradient", gradient);
  return sum;
}

Digests digests_of(const std::vector<NetworkCase>& networks) {
  Digests digests;
  for (const Precision precision : kPrecisions) {
    std::uint64_t sum = 0;
    for (const NetworkCase& network : networks) {
      Device device(make_cpu_backend(precision), 2);
      sum += digest_of_chain(device, network);
    }
    digests[precision == Precision::fp32 ? "fp32" : "bf16"] = digest_text(sum);
  }
  return digests;
}

TEST(CpuEqualBits, OfConvolutionsByTilesAndPatches) {
  EXPECT_EQ(digests_of(tiled_convolution_cases()),
            (Digests{{"bf16", "c72f814c34d6c4c6"}, {"fp32", "a8bae0f246cba6bc"}}));
}

TEST(CpuEqualBits, OfConvolutionsOfFewChannels) {
  EXPECT_EQ(digests_of(few_channel_convolution_cases()),
            (Digests{{"bf16", "3b2293ad0731029b"}, {"fp32", "b004a71ce5ddc5e2"}}));
}

TEST(CpuEqualBits, OfConvolutionsByMatrixProducts) {
  std::vector<NetworkCase> networks = convolution_cases();
  networks.push_back({"Dilated", 3, {16, 9, 11}, {Conv2dSpec{24, 3, 1, 2, kBias, kNoRelu, 1, 2}}});
  networks.push_back({"OneByOne", 5, {96, 6, 7}, {Conv2dSpec{160, 1, 1, 0, kBias, kRelu}}});
  networks.push_back({"ThreeByThreeStrided", 9, {64, 14, 13}, {Conv2dSpec{128, 3, 2, 1, kNoBias, kNoRelu}}});
  networks.push_back({"OfThreeChannelsStridedByThree", 4, {3, 26, 26}, {Conv2dSpec{30, 1, 3, 0, kNoBias, kNoRelu}}});
  EXPECT_EQ(digests_of(networks), (Digests{{"bf16", "7ce1a49254ccc719"}, {"fp32", "be1cf71684e6be3b"}}));
}

TEST(CpuEqualBits, OfPoolsAndLinearLayers) {
  EXPECT_EQ(digests_of(pool_and_linear_cases()), (Digests{{"bf16", "7cc5cd69ebe6246b"}, {"fp32", "b1f77bec0a365d4b"}}));
}

TEST(CpuEqualBits, OfLenet) {
  EXPECT_EQ(digests_of({lenet_like("Lenet", 16, 28)}),
            (Digests{{"bf16", "e7ee8c13f5befea2"}, {"fp32", "4d74d5c7b46c6285"}}));
}

// With norms, strides, shortcuts and both kinds of tiles.
TEST(CpuEqualBits, OfAResidualNetwork) {
  EXPECT_EQ(digests_of({resnet_like("Resnet", 8, 16, 64), resnet_like("NarrowResnet", 8, 16, 32)}),
            (Digests{{"bf16", "1ac16efa1d91935f"}, {"fp32", "2764e4eed5bb3d8c"}}));
}

float flushed(float value) { return std::abs(value) < FLT_MIN ? std::copysign(0.0f, value) : value; }

// sum + a * b, rounded once, with denormal numbers as zeros: those that would be less than 2^-126 with more exponents.
// In f64, the sum is exact where that matters, as a and b are numbers of bf16.
float fused_and_flushed(float a, float b, float sum) {
  const double exact =
      static_cast<double>(flushed(a)) * static_cast<double>(flushed(b)) + static_cast<double>(flushed(sum));
  if (std::abs(exact) < 0x1p-126 - 0x1p-151) return std::copysign(0.0f, static_cast<float>(exact));
  return std::fma(flushed(a), flushed(b), flushed(sum));
}

// Numbers of bf16 whose products and sums are large, small, denormal or cancel each other.
std::vector<float> wild_numbers(std::int64_t count, const std::string& name) {
  auto values = random_floats(count, name);
  for (std::size_t i = 0; i < values.size(); ++i) {
    constexpr int kExponents[] = {0, -126, -63, -64, 3, -130, -66, -20};
    values[i] = to_float(to_bf16(std::ldexp(values[i], kExponents[(i * 7 + i / 8) % 8])));
  }
  return values;
}

// The order of VDPBF16PS, step 1 before step 0, which processors without this instruction follow.
void expect_products_of_bf16(std::int64_t steps, const std::vector<float>& values, const std::vector<float>& factors) {
  const std::int64_t rows = std::ssize(values) / steps;
  const std::int64_t units = std::ssize(factors) / steps;
  const NetworkCase network{"Products", rows, {steps}, {LinearSpec{units, kNoBias, kNoRelu}}};
  Device device(make_cpu_backend(Precision::bf16));
  const NetworkWeights weights(device, network);
  device.upload(weights.tensors(0)[0], factors);
  SingleLayer layer(device, network.layers[0], {.input = device.backend().plain_activation({rows, steps})}, weights);
  std::vector<float> expected;
  for (std::int64_t row = 0; row < rows; ++row) {
    for (std::int64_t unit = 0; unit < units; ++unit) {
      const float* const a = values.data() + row * steps;
      const float* const b = factors.data() + unit * steps;
      float sum = 0;
      for (std::int64_t step = 0; step < steps; step += 2) {
        sum = step + 1 < steps ? fused_and_flushed(a[step + 1], b[step + 1], sum) : fused_and_flushed(0, 0, sum);
        sum = fused_and_flushed(a[step], b[step], sum);
      }
      expected.push_back(sum + 0.0f);  // in place of the bias
    }
  }
  EXPECT_TRUE(same_bits(layer.forward(values, {}), expected)) << steps << " steps";
}

TEST(CpuEqualBits, ProductsOfBf16AddTheSecondOfEachPairFirstAndFlushDenormals) {
  for (const std::int64_t steps : {1, 2, 7, 300}) {
    expect_products_of_bf16(steps, wild_numbers(5 * steps, "values"), wild_numbers(35 * steps, "factors"));
  }
}

// 2^-126 - m * 2^-154 for m from 1 to 30. Up to the half, m = 8, this is rounded to 2^-126, and then to 0. Processors
// that flush what is denormal before it is rounded would make zeros of all.
TEST(CpuEqualBits, SumsOfBf16AreRoundedBeforeTheyAreFlushed) {
  constexpr std::size_t kSteps = 600;  // more than a block
  constexpr std::size_t kUnits = 40;
  std::vector<float> values;
  for (int row = 1; row <= 30; ++row) {
    for (std::size_t step = 0; step < kSteps; ++step) {
      values.push_back(step % 2 == 0 ? static_cast<float>(row) * 0x1p-64f : 0x1p-63f);
    }
  }
  std::vector<float> factors(kUnits * kSteps, 0.0f);
  for (std::size_t unit = 0; unit < kUnits; ++unit) {
    float* const of_unit = factors.data() + unit * kSteps;
    const std::size_t step = unit * 86 % kSteps;  // even
    const float sign = unit % 3 == 0 ? -1.0f : 1.0f;
    of_unit[unit % 2 == 0 ? 1 : step + 1] = sign * 0x1p-63f;
    of_unit[step] = sign * -0x1p-90f;
  }
  expect_products_of_bf16(kSteps, values, factors);
}

}  // namespace
}  // namespace tutti::testing_support
