#pragma once
// Tests of every backend's vector operations. The test of each backend instantiates FlatContract.

#include "tutti/base/error.hpp"

#include "backend/device_values.hpp"
#include "reference/sgd.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <iterator>
#include <limits>
#include <vector>

namespace tutti::testing_support {

struct FlatBackend {
  std::string name;
  std::function<std::unique_ptr<Backend>()> make;
};

inline std::ostream& operator<<(std::ostream& out, const FlatBackend& backend) { return out << backend.name; }

class FlatContract : public ::testing::TestWithParam<FlatBackend> {
 protected:
  FlatContract() : device_(GetParam().make()) {}

  static Tensor tensor_of(const Buffer& buffer) {
    return buffer.view({static_cast<std::int64_t>(buffer.bytes() / sizeof(float))}, ElementType::f32);
  }
  std::vector<float> values_of(const Buffer& buffer) { return device_.download<float>(tensor_of(buffer)); }

  void expect_steps(const reference::SgdOptions& options, bool with_velocity);

  Device device_;
};

inline constexpr std::int64_t kFlatSizes[] = {1, 7, 64, 1000, 4099};

// Three steps with other gradients each, so that the velocity matters.
inline void FlatContract::expect_steps(const reference::SgdOptions& options, bool with_velocity) {
  for (const std::int64_t size : kFlatSizes) {
    const auto start = random_floats(size, "weights");
    const Buffer weights = device_.buffer_of(start);
    const Buffer velocity = device_.backend().allocate(start.size() * sizeof(float));
    std::vector<reference::SgdState> expected;
    for (const float weight : start) expected.push_back({weight, 0});
    for (int step = 0; step < 3; ++step) {
      const auto values = random_floats(size, "gradients " + std::to_string(step));
      const Buffer gradients = device_.buffer_of(values);
      device_.backend().sgd_step(
          device_.stream(), {tensor_of(weights), tensor_of(gradients), with_velocity ? tensor_of(velocity) : Tensor{},
                             static_cast<float>(options.learning_rate), static_cast<float>(options.momentum),
                             static_cast<float>(options.weight_decay), options.nesterov});
      EXPECT_TRUE(same_bits(values_of(gradients), values));
      for (std::size_t i = 0; i < values.size(); ++i) expected[i] = sgd_step(options, expected[i], values[i]);
    }
    const auto got = values_of(weights);
    for (std::size_t i = 0; i < got.size(); ++i) ASSERT_NEAR(got[i], expected[i].weight, 1e-6) << i << " of " << size;
    if (options.momentum == 0) continue;
    const auto moved = values_of(velocity);
    for (std::size_t i = 0; i < moved.size(); ++i) ASSERT_NEAR(moved[i], expected[i].velocity, 1e-6) << i;
  }
}

TEST_P(FlatContract, PlainStepsNeedNoVelocity) {
  expect_steps({.learning_rate = 0.1}, false);
  expect_steps({.learning_rate = 0.1, .weight_decay = 0.01}, false);
}

TEST_P(FlatContract, StepsWithMomentumAreThoseOfPyTorch) {
  expect_steps({.learning_rate = 0.1, .momentum = 0.9}, true);
  expect_steps({.learning_rate = 0.1, .momentum = 0.5, .weight_decay = 0.01}, true);
}

TEST_P(FlatContract, NesterovStepsAreThoseOfPyTorch) {
  expect_steps({.learning_rate = 0.1, .momentum = 0.9, .nesterov = true}, true);
  expect_steps({.learning_rate = 0.05, .momentum = 0.9, .weight_decay = 0.01, .nesterov = true}, true);
}

TEST_P(FlatContract, MomentumOfZeroWithAVelocityStepsAsWithout) {
  expect_steps({.learning_rate = 0.1, .weight_decay = 0.01}, true);
}

TEST_P(FlatContract, StepsTakeTheirFactorsFromMemory) {
  const auto start = random_floats(1000, "weights");
  const auto slopes = random_floats(1000, "gradients");
  const Buffer weights = device_.buffer_of(start);
  const Buffer gradients = device_.buffer_of(slopes);
  const Buffer velocity = device_.buffer_of(std::vector<float>(1000, 0.0f));
  const Buffer gradient_factor = device_.buffer_of({0.3f});
  const Buffer rate_factor = device_.buffer_of({0.02f});
  device_.backend().sgd_step(device_.stream(), {.weights = tensor_of(weights),
                                                .gradients = tensor_of(gradients),
                                                .velocity = tensor_of(velocity),
                                                .learning_rate = 0.5f,
                                                .momentum = 0.9f,
                                                .weight_decay = 0.1f,
                                                .gradient_factor = tensor_of(gradient_factor),
                                                .rate_factor = tensor_of(rate_factor)});
  const auto got = values_of(weights);
  const auto moved = values_of(velocity);
  for (std::size_t i = 0; i < got.size(); ++i) {
    const double step = (double{slopes[i]} * 0.3 + 0.1 * start[i]) * 0.02;
    ASSERT_NEAR(moved[i], step, 1e-8) << i;
    ASSERT_NEAR(got[i], start[i] - 0.5 * step, 1e-7) << i;
  }
}

TEST_P(FlatContract, BlendsByTheShare) {
  for (const std::int64_t size : kFlatSizes) {
    const auto old = random_floats(size, "old");
    const auto fresh = random_floats(size, "fresh");
    const Buffer to = device_.buffer_of(old);
    const Buffer from = device_.buffer_of(fresh);
    device_.backend().blend(device_.stream(), tensor_of(to), tensor_of(from), 0.1f);
    const auto got = values_of(to);
    for (std::size_t i = 0; i < got.size(); ++i) ASSERT_NEAR(got[i], 0.9 * old[i] + 0.1 * fresh[i], 1e-7) << i;
  }
}

TEST_P(FlatContract, ConvertsToBf16AndBack) {
  // Halfway between two numbers of bf16, and next to that; denormal; at the ends of the range.
  std::vector<float> values{1.00390625f, 1.01171875f, 1.00390637f, -1.00390637f, 0.0f,     -0.0f,   1e-40f,
                            3.38e38f,    3.4e38f,     kInfinity,   -kInfinity,   -3.4e38f, 1.0f / 3};
  const std::vector<float> rounded{1.0f,        1.015625f, 1.0078125f, -1.0078125f, 0.0f,       -0.0f,       0x1p-133f,
                                   0x1.fcp127f, kInfinity, kInfinity,  -kInfinity,  -kInfinity, 0.333984375f};
  values.push_back(std::numeric_limits<float>::quiet_NaN());
  for (const float value : random_floats(4099, "values")) values.push_back(value);
  const Buffer from = device_.buffer_of(values);
  const auto elements = std::ssize(values);
  const Buffer narrow = device_.backend().allocate(values.size() * 2);
  const Buffer back = device_.backend().allocate(from.bytes());
  device_.backend().convert(device_.stream(), narrow.view({elements}, ElementType::bf16), tensor_of(from));
  device_.backend().convert(device_.stream(), tensor_of(back), narrow.view({elements}, ElementType::bf16));
  const auto got = values_of(back);
  EXPECT_TRUE(same_bits({got.begin(), got.begin() + std::ssize(rounded)}, rounded));
  EXPECT_TRUE(std::isnan(got[rounded.size()]));
  for (std::size_t i = rounded.size() + 1; i < got.size(); ++i) {
    ASSERT_LE(std::abs(got[i] - values[i]), std::abs(values[i]) / 256) << i;
  }
  EXPECT_THROW(device_.backend().convert(device_.stream(), tensor_of(back), tensor_of(from)), Error);
}

TEST_P(FlatContract, AStepGivesAnElementTheSameBitsAtAnyOffset) {
  const auto values = random_floats(1000, "weights");
  const auto slopes = random_floats(1000, "gradients");
  const auto stepped = [&](std::size_t from, std::size_t to) {
    const Buffer weights = device_.buffer_of(
        {values.begin() + static_cast<std::ptrdiff_t>(from), values.begin() + static_cast<std::ptrdiff_t>(to)});
    const Buffer gradients = device_.buffer_of(
        {slopes.begin() + static_cast<std::ptrdiff_t>(from), slopes.begin() + static_cast<std::ptrdiff_t>(to)});
    const Buffer velocity = device_.buffer_of(std::vector<float>(to - from, 0.3f));
    device_.backend().sgd_step(
        device_.stream(), {tensor_of(weights), tensor_of(gradients), tensor_of(velocity), 0.1f, 0.9f, 0.01f, true});
    return values_of(weights);
  };
  const auto whole = stepped(0, 1000);
  for (const std::size_t cut : {1u, 17u, 503u, 999u}) {
    auto pieces = stepped(0, cut);
    const auto rest = stepped(cut, 1000);
    pieces.insert(pieces.end(), rest.begin(), rest.end());
    EXPECT_TRUE(same_bits(pieces, whole)) << cut;
  }
}

TEST_P(FlatContract, AddsElementByElement) {
  for (const std::int64_t size : kFlatSizes) {
    const auto more = random_floats(size, "more");
    auto expected = random_floats(size, "sum");
    const Buffer sum = device_.buffer_of(expected);
    const Buffer addend = device_.buffer_of(more);
    device_.backend().add(device_.stream(), tensor_of(sum), tensor_of(addend));
    for (std::size_t i = 0; i < expected.size(); ++i) expected[i] += more[i];
    EXPECT_TRUE(same_bits(values_of(sum), expected)) << size;
  }
}

// In a block of three slices, of which these are some elements in the middle.
TEST_P(FlatContract, FindsTheFirstSliceWithAValueThatIsNotFinite) {
  constexpr std::int64_t kOffset = 3;
  constexpr std::int64_t kEnds[] = {16, 1016, 5000};
  const Buffer ends = device_.backend().allocate(sizeof kEnds);
  device_.upload(ends.view({3}, ElementType::i64), std::vector<std::int64_t>(std::begin(kEnds), std::end(kEnds)));
  const Buffer found = device_.backend().allocate(2 * sizeof(std::int32_t));
  const auto at = [&](std::size_t i) { return found.view({1}, ElementType::i32, i * sizeof(std::int32_t)); };
  const auto search = [&](const std::vector<float>& values, const Tensor& only_if = {}) {
    const Buffer memory = device_.buffer_of(values);
    device_.backend().find_not_finite(device_.stream(),
                                      {tensor_of(memory), ends.view({3}, ElementType::i64), kOffset, at(0), only_if});
    return device_.download<std::int32_t>(at(0))[0];
  };
  constexpr float kBad[] = {std::numeric_limits<float>::quiet_NaN(), -std::numeric_limits<float>::infinity()};
  for (const std::size_t size : {1u, 13u, 1000u, 4099u}) {
    for (std::size_t bad = 0; bad < size; bad += 1 + bad / 2) {
      device_.backend().fill_zero(device_.stream(), at(0));
      auto values = random_floats(static_cast<std::int64_t>(size), "finite", 3e38);
      EXPECT_EQ(search(values), 0) << size;
      values[bad] = kBad[bad % 2];
      values.back() = kBad[1];
      EXPECT_EQ(search(values, at(1)), 0) << size;
      const std::int64_t element = static_cast<std::int64_t>(bad) + kOffset;
      const int expected = element < kEnds[0] ? 3 : element < kEnds[1] ? 2 : 1;
      EXPECT_EQ(search(values), expected) << bad << " of " << size;
      EXPECT_EQ(search(values, at(0)), expected) << bad << " of " << size;
      values[bad] = 0;
      EXPECT_EQ(search(values), expected) << "what was found is never lowered";
    }
  }
}

TEST_P(FlatContract, CopiesAndClearsWholeTensors) {
  const auto values = random_floats(4099, "copied");
  const Buffer from = device_.buffer_of(values);
  const Buffer to = device_.backend().allocate(from.bytes());
  device_.backend().copy(device_.stream(), tensor_of(to), tensor_of(from));
  EXPECT_TRUE(same_bits(values_of(to), values));
  device_.backend().fill_zero(device_.stream(), to.view({4000}, ElementType::f32));
  auto expected = values;
  std::fill_n(expected.begin(), 4000, 0.0f);
  EXPECT_TRUE(same_bits(values_of(to), expected));
}

TEST_P(FlatContract, AllocatesZeroedAlignedMemory) {
  for (const std::size_t bytes : {std::size_t{0}, std::size_t{4}, std::size_t{100}, std::size_t{5} << 20}) {
    const Buffer buffer = device_.backend().allocate(bytes);
    EXPECT_EQ(buffer.bytes(), bytes);
    EXPECT_EQ(buffer.space(), device_.backend().memory_space());
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(buffer.data()) % 64, 0u);
    const auto values =
        device_.download<std::uint8_t>(buffer.view({static_cast<std::int64_t>(bytes)}, ElementType::u8));
    EXPECT_EQ(values, std::vector<std::uint8_t>(bytes));
  }
}

}  // namespace tutti::testing_support
