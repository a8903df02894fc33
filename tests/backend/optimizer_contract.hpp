#pragma once
// The rest of FlatContract: AdamW, and the norms and factors that optimizers scale their steps with.

#include "backend/flat_contract.hpp"
#include "reference/adamw.hpp"

namespace tutti::testing_support {

TEST_P(FlatContract, AdamWStepsAreThoseOfPyTorch) {
  const reference::AdamWOptions options{.learning_rate = 0.01, .beta2 = 0.99, .weight_decay = 0.1};
  for (const std::int64_t size : kFlatSizes) {
    const auto start = random_floats(size, "weights");
    const Buffer weights = device_.buffer_of(start);
    const Buffer first = device_.backend().allocate(start.size() * sizeof(float));
    const Buffer second = device_.backend().allocate(start.size() * sizeof(float));
    const Buffer factor = device_.buffer_of({0.5f});
    std::vector<reference::AdamWState> expected;
    for (const float weight : start) expected.push_back({weight});
    for (int step = 1; step <= 4; ++step) {
      const auto slopes = random_floats(size, "gradients " + std::to_string(step));
      const Buffer gradients = device_.buffer_of(slopes);
      device_.backend().adamw_step(device_.stream(), {.weights = tensor_of(weights),
                                                      .gradients = tensor_of(gradients),
                                                      .first_moment = tensor_of(first),
                                                      .second_moment = tensor_of(second),
                                                      .learning_rate = options.learning_rate,
                                                      .beta2 = options.beta2,
                                                      .weight_decay = options.weight_decay,
                                                      .step = step,
                                                      .gradient_factor = tensor_of(factor)});
      EXPECT_TRUE(same_bits(values_of(gradients), slopes));
      for (std::size_t i = 0; i < slopes.size(); ++i) {
        expected[i] = reference::adamw_step(options, expected[i], 0.5 * slopes[i], step);
      }
    }
    const auto got = values_of(weights);
    for (std::size_t i = 0; i < got.size(); ++i) ASSERT_NEAR(got[i], expected[i].weight, 1e-6) << i << " of " << size;
  }
}

TEST_P(FlatContract, SumsOfSquaresAreThoseOfEachTensorAtAnyOffset) {
  std::vector<Buffer> buffers;
  std::vector<Tensor> tensors;
  std::vector<double> expected;
  for (const std::int64_t size : {1, 7, 4096, 4097, 100000}) {
    const auto values = random_floats(size, "squares " + std::to_string(size), 100);
    expected.push_back(0);
    for (const float value : values) expected.back() += double{value} * value;
    buffers.push_back(device_.buffer_of(values));
    tensors.push_back(tensor_of(buffers.back()));
  }
  const auto sums_of = [&](const std::vector<Tensor>& list) {
    const auto count = static_cast<std::int64_t>(list.size());
    const Buffer sums = device_.backend().allocate(list.size() * sizeof(double));
    device_.backend().sum_squares(device_.stream(), list, sums.view({count}, ElementType::f64));
    return device_.download<double>(sums.view({count}, ElementType::f64));
  };
  const auto got = sums_of(tensors);
  for (std::size_t i = 0; i < got.size(); ++i) {
    EXPECT_NEAR(got[i] / expected[i], 1, 1e-13) << i;
    EXPECT_EQ(sums_of({tensors[i]})[0], got[i]) << i;
  }
}

TEST_P(FlatContract, SumsRunsInOrder) {
  std::vector<double> values;
  std::vector<std::int64_t> ends;
  std::vector<double> expected;
  for (const int length : {1, 5, 0, 33, 1000, 2}) {
    double sum = 0;
    for (const float value : random_floats(length, "run", 1e3)) sum += values.emplace_back(value * 1e-3 / 3);
    ends.push_back(static_cast<std::int64_t>(values.size()));
    expected.push_back(sum);
  }
  values.push_back(1);  // of no run
  const auto hold = [&](const auto& content, ElementType type) {
    Buffer buffer = device_.backend().allocate(content.size() * 8);
    device_.upload(buffer.view({static_cast<std::int64_t>(content.size())}, type), content);
    return buffer;
  };
  const Buffer all = hold(values, ElementType::f64);
  const Buffer stops = hold(ends, ElementType::i64);
  const Buffer sums = hold(std::vector<double>(ends.size(), -1.0), ElementType::f64);
  const auto runs = static_cast<std::int64_t>(ends.size());
  const Tensor result = sums.view({runs}, ElementType::f64);
  device_.backend().sum_runs(device_.stream(), all.view({static_cast<std::int64_t>(values.size())}, ElementType::f64),
                             stops.view({runs}, ElementType::i64), result);
  EXPECT_EQ(device_.download<double>(result), expected);
}

TEST_P(FlatContract, ClipsOnlyLongGradients) {
  const Buffer squares = device_.backend().allocate(2 * sizeof(double));
  const Tensor sums = squares.view({2}, ElementType::f64);
  const Buffer factor = device_.buffer_of({-1});
  const auto clipped = [&](double one, double other, double most) {
    device_.upload(sums, std::vector<double>{one, other});
    device_.backend().clip_factor(device_.stream(), sums, most, tensor_of(factor));
    return values_of(factor)[0];
  };
  EXPECT_EQ(clipped(9, 16, 100), 1.0f);
  EXPECT_EQ(clipped(0, 0, 1), 1.0f);
  EXPECT_FLOAT_EQ(clipped(9, 16, 2), static_cast<float>(2 / (5 + 1e-6)));
  EXPECT_TRUE(std::isnan(clipped(std::nan(""), 1, 1)));
}

TEST_P(FlatContract, TrustFactorsFollowTheNorms) {
  const Buffer memory = device_.backend().allocate(8 * sizeof(double));
  const Tensor weights = memory.view({4}, ElementType::f64);
  const Tensor gradients = memory.view({4}, ElementType::f64, 4 * sizeof(double));
  device_.upload(weights, std::vector<double>{4, 0, 9, 1e-30});
  device_.upload(gradients, std::vector<double>{16, 1, 0, 4});
  const Buffer factor = device_.buffer_of({0.5f});
  const Buffer factors = device_.buffer_of({0, 0, 0, 0});
  device_.backend().trust_factors(device_.stream(), {.weight_squares = weights,
                                                     .gradient_squares = gradients,
                                                     .gradient_factor = tensor_of(factor),
                                                     .trust = 0.01,
                                                     .weight_decay = 0.1,
                                                     .factors = tensor_of(factors)});
  const auto got = values_of(factors);
  EXPECT_FLOAT_EQ(got[0], static_cast<float>(0.01 * 2 / (4 * 0.5 + 0.1 * 2)));
  EXPECT_EQ(got[1], 1.0f);
  EXPECT_EQ(got[2], 1.0f);
  EXPECT_FLOAT_EQ(got[3], static_cast<float>(0.01 * 1e-15));
}

}  // namespace tutti::testing_support
