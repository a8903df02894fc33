#pragma once
// Tests of every backend's softmax cross-entropy. The test of each backend instantiates LossContract.

#include "backend/comparison.hpp"
#include "backend/device_values.hpp"
#include "reference/softmax_loss.hpp"

#include <gtest/gtest.h>

#include <functional>
#include <limits>

namespace tutti::testing_support {

struct LossBackend {
  std::string name;
  std::function<std::unique_ptr<Backend>()> make;
};

inline std::ostream& operator<<(std::ostream& out, const LossBackend& backend) { return out << backend.name; }

struct LossOutcome {
  LossSums sums;
  std::vector<float> gradient;
};

class LossContract : public ::testing::TestWithParam<LossBackend> {
 protected:
  static constexpr float kScale = 1.0f / 48;

  LossContract() : device_(GetParam().make()) {}

  // Adds to sums with the values `before`. The gradient is empty if none is requested.
  LossOutcome run(const Shape& shape, const std::vector<float>& logits, const std::vector<std::int32_t>& labels,
                  bool wants_gradient = true, const LossSums& before = {}, const reference::LossTargets& targets = {}) {
    Backend& backend = device_.backend();
    const ActivationSpec spec = backend.plain_activation(shape);
    const Buffer values = backend.allocate(spec.bytes);
    const Buffer gradient = backend.allocate(spec.bytes);
    const Buffer label_memory = backend.allocate(labels.size() * sizeof(std::int32_t));
    const Buffer sum_memory = backend.allocate(LossSums::kFields * sizeof(std::int64_t));
    const Tensor sums = sum_memory.view({LossSums::kFields}, ElementType::i64);
    device_.set_values(spec, values, logits);
    device_.poison(gradient);
    Labels given{label_memory.view({shape[0]}, ElementType::i32)};
    device_.upload(given, labels);
    const Buffer others = backend.allocate(std::max<std::size_t>(1, targets.others.size()) * sizeof(std::int32_t));
    const Buffer shares = backend.allocate(std::max<std::size_t>(1, targets.shares.size()) * sizeof(float));
    if (!targets.others.empty()) {
      given.others = others.view({shape[0]}, ElementType::i32);
      given.shares = shares.view({shape[0]}, ElementType::f32);
      device_.upload(given.others, targets.others);
      device_.upload(given.shares, targets.shares);
    }
    const LossSums::Fields first = before.fields();
    device_.upload(sums, std::vector<std::int64_t>(first.begin(), first.end()));

    const auto layer = backend.make_softmax_loss(spec, {targets.smoothing, targets.weights});
    const Buffer scale = backend.allocate(sizeof(float));
    device_.upload(scale.view({1}, ElementType::f32), std::vector<float>{kScale});
    layer->run(device_.stream(), {values.data(), given, static_cast<const float*>(scale.data()), sums,
                                  wants_gradient ? gradient.data() : nullptr});
    LossSums::Fields fields{};
    std::ranges::copy(device_.download<std::int64_t>(sums), fields.begin());
    return {LossSums::from(fields), device_.values_of(spec, gradient)};
  }

  Device device_;
};

TEST_P(LossContract, EqualsTheDefinition) {
  for (const Shape& shape : {Shape{1, 1}, Shape{1, 10}, Shape{3, 2}, Shape{64, 10}, Shape{16, 1000}}) {
    const auto logits = random_floats(shape.elements(), shape.text(), 8);
    std::vector<std::int32_t> labels;
    for (std::int64_t n = 0; n < shape[0]; ++n) labels.push_back(static_cast<std::int32_t>(n * 7 % shape[1]));
    const auto expected = reference::softmax_loss({shape, logits}, labels, kScale);
    const LossOutcome got = run(shape, logits, labels);
    EXPECT_NEAR(got.sums.loss(), expected.loss, 1e-7 * (1 + expected.loss)) << shape.text();
    EXPECT_EQ(got.sums.correct, expected.correct) << shape.text();
    EXPECT_EQ(got.sums.samples, shape[0]);
    EXPECT_EQ(got.sums.not_finite, 0);
    EXPECT_TRUE(close(got.gradient, expected.gradient, 1e-6)) << shape.text();
  }
}

TEST_P(LossContract, SmoothingSharesTheTargetAmongAllClasses) {
  for (const double smoothing : {0.1, 0.9}) {
    for (const Shape& shape : {Shape{1, 1}, Shape{3, 2}, Shape{64, 10}}) {
      const auto logits = random_floats(shape.elements(), shape.text(), 8);
      std::vector<std::int32_t> labels;
      for (std::int64_t n = 0; n < shape[0]; ++n) labels.push_back(static_cast<std::int32_t>(n * 7 % shape[1]));
      const auto expected = reference::softmax_loss({shape, logits}, labels, kScale, {.smoothing = smoothing});
      const LossOutcome got = run(shape, logits, labels, true, {}, {.smoothing = smoothing});
      EXPECT_NEAR(got.sums.loss(), expected.loss, 1e-7 * (1 + expected.loss)) << shape.text();
      EXPECT_EQ(got.sums.correct, expected.correct) << shape.text();
      EXPECT_TRUE(close(got.gradient, expected.gradient, 1e-6)) << shape.text();
    }
  }
}

TEST_P(LossContract, DividesTheTargetAmongTwoLabelsAndWeighsTheClasses) {
  for (const double smoothing : {0.0, 0.1}) {
    for (const bool weighs : {false, true}) {
      for (const Shape& shape : {Shape{1, 1}, Shape{3, 2}, Shape{64, 10}, Shape{5, 100}}) {
        const auto logits = random_floats(shape.elements(), shape.text(), 8);
        reference::LossTargets targets{.smoothing = smoothing};
        std::vector<std::int32_t> labels;
        for (std::int64_t n = 0; n < shape[0]; ++n) {
          labels.push_back(static_cast<std::int32_t>(n * 7 % shape[1]));
          targets.others.push_back(n % 5 == 0 ? -1 : static_cast<std::int32_t>(n * 3 % shape[1]));
          targets.shares.push_back(n % 5 == 0 ? 1 : 0.5f + static_cast<float>(n % 7) / 14);
        }
        for (std::int64_t c = 0; weighs && c < shape[1]; ++c) targets.weights.push_back(static_cast<double>(c % 4) / 2);
        const auto expected = reference::softmax_loss({shape, logits}, labels, kScale, targets);
        const LossOutcome got = run(shape, logits, labels, true, {}, targets);
        EXPECT_NEAR(got.sums.loss(), expected.loss, 1e-7 * (1 + expected.loss)) << shape.text();
        EXPECT_EQ(got.sums.correct, expected.correct) << shape.text();
        EXPECT_TRUE(close(got.gradient, expected.gradient, 1e-6)) << shape.text();
      }
    }
  }
}

// The expected values are those of PyTorch's CrossEntropyLoss: with class weights, whose mean is over the weights of
// the labels, and of targets that are distributions, whose mean is over the samples.
TEST_P(LossContract, EqualsPyTorchs) {
  const std::vector<float> logits{1, 2, -1, 0.5f, 0, -2, 3, 1, 0.25f, 0.5f, 1, -0.5f};
  const double all_weights = 2 + 0.5 + 1;  // of the labels 1, 2 and 0
  const LossOutcome weighed = run({3, 4}, logits, {1, 2, 0}, true, {}, {.smoothing = 0.1, .weights = {1, 2, 0.5, 3}});
  EXPECT_NEAR(weighed.sums.loss() / all_weights, 0.98469992, 1e-6);
  const LossOutcome mixed =
      run({3, 4}, logits, {1, 2, 0}, true, {}, {.smoothing = 0.1, .others = {2, 1, 0}, .shares = {0.75f, 0.625f, 1}});
  EXPECT_NEAR(mixed.sums.loss() / 3, 1.66607915, 1e-6);
  std::vector<double> gradient{0.11857367, -0.18683848, 0.01344245,  0.05482236, 0.00016734, -0.01329639,
                               0.01468643, -0.00155739, -0.20199411, 0.06569830, 0.12829991, 0.00799590};
  for (double& value : gradient) value *= all_weights * kScale;
  EXPECT_TRUE(close(weighed.gradient, gradient, 1e-6));
  gradient = {0.06640261, -0.03017999, -0.07321892, 0.03699631, 0.00559086, -0.11894890,
              0.08384150, 0.02951654,  -0.23993470, 0.07949225, 0.13646657, 0.02397589};
  for (double& value : gradient) value *= 3 * kScale;
  EXPECT_TRUE(close(mixed.gradient, gradient, 1e-6));
}

TEST_P(LossContract, RefusesWeightsThatDoNotFitTheClasses) {
  const auto make = [&](const std::vector<double>& weights) {
    device_.backend().make_softmax_loss(device_.backend().plain_activation({2, 3}), {.class_weights = weights});
  };
  make({1, 0, 2});
  for (const std::vector<double>& wrong : {std::vector<double>{1, 2}, {1, 2, 3, 4}, {1, -1, 2}, {1, NAN, 2}}) {
    EXPECT_THROW(make(wrong), Error);
  }
}

TEST_P(LossContract, EvaluationGivesTheSameSumsAndWritesNoGradient) {
  const auto logits = random_floats(30, "evaluation", 5);
  const LossOutcome training = run({3, 10}, logits, {1, 9, 0});
  const LossOutcome evaluation = run({3, 10}, logits, {1, 9, 0}, false);
  EXPECT_EQ(evaluation.sums, training.sums);
  EXPECT_TRUE(std::ranges::all_of(evaluation.gradient, [](float value) { return std::isnan(value); }));
}

TEST_P(LossContract, AddsToTheSumsItIsGiven) {
  const LossSums before{1000, 20, 30, 4};
  const LossOutcome alone = run({2, 3}, {1, 2, 3, 3, 2, 1}, {2, 1});
  const LossOutcome added = run({2, 3}, {1, 2, 3, 3, 2, 1}, {2, 1}, true, before);
  EXPECT_EQ(added.sums, (LossSums{1000 + alone.sums.loss_quanta, 20 + alone.sums.correct, 32, 4}));
}

TEST_P(LossContract, CountsTheFirstOfEqualLogitsAsTheAnswer) {
  const std::vector<float> tied{1, 5, 5, 0};
  EXPECT_EQ(run({1, 4}, tied, {1}).sums.correct, 1);
  EXPECT_EQ(run({1, 4}, tied, {2}).sums.correct, 0);
  EXPECT_EQ(run({1, 3}, {0, 0, 0}, {0}).sums.correct, 1);
  EXPECT_EQ(run({1, 3}, {0, 0, 0}, {2}).sums.correct, 0);
}

TEST_P(LossContract, StaysExactForHugeLogits) {
  const LossOutcome right = run({1, 3}, {3e30f, -3e30f, 0}, {0});
  EXPECT_EQ(right.sums, (LossSums{0, 1, 1, 0}));
  EXPECT_TRUE(same_bits(right.gradient, {0, 0, 0}));
  const LossOutcome wrong = run({1, 2}, {1e9f, 0}, {1});
  EXPECT_EQ(wrong.sums.loss(), 1e9);
  EXPECT_TRUE(same_bits(wrong.gradient, {kScale, -kScale}));
}

TEST_P(LossContract, CountsACallWithoutAFiniteLossAndAddsNoLossForIt) {
  const LossSums before{77, 0, 0, 0};
  for (const std::vector<float>& bad :
       {std::vector<float>{1, kNan, 0}, {kNan, kNan, kNan}, {kInfinity, 0, 0}, {0, 0, -kInfinity}}) {
    std::vector<float> logits{4, 1, 0};
    logits.insert(logits.end(), bad.begin(), bad.end());
    const LossOutcome got = run({2, 3}, logits, {0, 2}, true, before);
    EXPECT_EQ(got.sums.loss_quanta, 77) << bad[0];
    EXPECT_EQ(got.sums.not_finite, 1) << bad[0];
    EXPECT_EQ(got.sums.samples, 2) << bad[0];
    EXPECT_EQ(got.sums.correct, 1) << bad[0];
  }
}

TEST_P(LossContract, AddsUpAnyFiniteLosses) {
  LossSums sums;
  double loss = 0;
  for (const float logit : {3e38f, 70000.0f, 3e38f, 3e12f, 2.5f, 3e30f}) {
    sums = run({1, 2}, {logit, -logit}, {1}, true, sums).sums;
    const LossSums alone = run({1, 2}, {logit, -logit}, {1}).sums;
    EXPECT_NEAR(alone.loss(), 2.0 * logit, logit * 0x1p-7) << logit;
    EXPECT_EQ(alone.loss_quanta, std::llrint(std::fmod(alone.loss(), 65536.0) * LossSums::kLossScale)) << logit;
    loss += 2.0 * logit;
  }
  EXPECT_DOUBLE_EQ(sums.loss(), loss);
  EXPECT_EQ(sums.not_finite, 0);
  EXPECT_EQ(sums.samples, 6);
}

TEST_P(LossContract, NeverPredictsAClassWithANanLogit) {
  EXPECT_EQ(run({1, 3}, {kNan, 0, 1}, {0}).sums.correct, 0);
  EXPECT_EQ(run({1, 3}, {kNan, 0, 1}, {2}).sums.correct, 1);
}

// Each call rounds its sum once, to half a unit; so this holds to one unit for each call, and exactly for
// calls cut alike: which is what makes sums over parts independent of the ranks that compute them.
TEST_P(LossContract, DependsOnHowABatchIsCutOnlyByOneRoundingPerCall) {
  const auto logits = random_floats(64 * 10, "cut", 6);
  const std::vector<std::int32_t> labels(64, 3);
  const LossSums whole = run({64, 10}, logits, labels).sums;
  LossSums pieces;
  std::vector<LossSums> each;
  for (int i = 0; i < 8; ++i) {
    const std::vector<float> piece(logits.begin() + i * 80, logits.begin() + (i + 1) * 80);
    pieces = run({8, 10}, piece, std::vector<std::int32_t>(8, 3), true, pieces).sums;
    each.push_back(run({8, 10}, piece, std::vector<std::int32_t>(8, 3)).sums);
  }
  EXPECT_NEAR(static_cast<double>(pieces.loss_quanta), static_cast<double>(whole.loss_quanta), 9);
  EXPECT_EQ(pieces.correct, whole.correct);
  EXPECT_EQ(pieces.samples, whole.samples);
  LossSums backwards;
  for (auto piece = each.rbegin(); piece != each.rend(); ++piece) {
    backwards.loss_quanta += piece->loss_quanta;
    backwards.correct += piece->correct;
    backwards.samples += piece->samples;
  }
  EXPECT_EQ(backwards, pieces);
}

TEST_P(LossContract, GivesTheSameGradientToASampleInAnyBatch) {
  const auto logits = random_floats(64 * 10, "rows", 6);
  const std::vector<std::int32_t> labels(64, 7);
  const auto whole = run({64, 10}, logits, labels).gradient;
  for (const int n : {0, 31, 63}) {
    const std::vector<float> row(logits.begin() + n * 10, logits.begin() + (n + 1) * 10);
    EXPECT_TRUE(same_bits(run({1, 10}, row, {7}).gradient, {whole.begin() + n * 10, whole.begin() + (n + 1) * 10}));
  }
}

}  // namespace tutti::testing_support
