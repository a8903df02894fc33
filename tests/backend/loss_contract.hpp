#pragma once
// What every backend's softmax cross-entropy must do. A backend's own test instantiates LossContract.

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

  // Adds to sums that hold `before`; with an empty gradient when none is asked for.
  LossOutcome run(const Shape& shape, const std::vector<float>& logits, const std::vector<std::int32_t>& labels,
                  bool wants_gradient = true, const LossSums& before = {}, double smoothing = 0) {
    Backend& backend = device_.backend();
    const ActivationSpec spec = backend.plain_activation(shape);
    const Buffer values = backend.allocate(spec.bytes);
    const Buffer gradient = backend.allocate(spec.bytes);
    const Buffer label_memory = backend.allocate(labels.size() * sizeof(std::int32_t));
    const Buffer sum_memory = backend.allocate(LossSums::kFigures * sizeof(std::int64_t));
    const Tensor sums = sum_memory.view({LossSums::kFigures}, ElementType::i64);
    device_.set_values(spec, values, logits);
    device_.poison(gradient);
    device_.upload(label_memory.view({shape[0]}, ElementType::i32), labels);
    device_.upload(sums,
                   std::vector<std::int64_t>{before.loss_steps, before.correct, before.samples, before.not_finite});

    const auto layer = backend.make_softmax_loss(spec, smoothing);
    layer->run(device_.stream(), {values.data(), static_cast<const std::int32_t*>(label_memory.data()), kScale, sums,
                                  wants_gradient ? gradient.data() : nullptr});
    const auto figures = device_.download<std::int64_t>(sums);
    return {{figures[0], figures[1], figures[2], figures[3]}, device_.values_of(spec, gradient)};
  }

  static double loss(const LossSums& sums) { return static_cast<double>(sums.loss_steps) / LossSums::kLossScale; }

  Device device_;
};

TEST_P(LossContract, EqualsTheDefinition) {
  for (const Shape& shape : {Shape{1, 1}, Shape{1, 10}, Shape{3, 2}, Shape{64, 10}, Shape{16, 1000}}) {
    const auto logits = random_floats(shape.elements(), shape.text(), 8);
    std::vector<std::int32_t> labels;
    for (std::int64_t n = 0; n < shape[0]; ++n) labels.push_back(static_cast<std::int32_t>(n * 7 % shape[1]));
    const auto expected = reference::softmax_loss({shape, logits}, labels, kScale);
    const LossOutcome got = run(shape, logits, labels);
    EXPECT_NEAR(loss(got.sums), expected.loss, 1e-7 * (1 + expected.loss)) << shape.text();
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
      const auto expected = reference::softmax_loss({shape, logits}, labels, kScale, smoothing);
      const LossOutcome got = run(shape, logits, labels, true, {}, smoothing);
      EXPECT_NEAR(loss(got.sums), expected.loss, 1e-7 * (1 + expected.loss)) << shape.text();
      EXPECT_EQ(got.sums.correct, expected.correct) << shape.text();
      EXPECT_TRUE(close(got.gradient, expected.gradient, 1e-6)) << shape.text();
    }
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
  EXPECT_EQ(added.sums, (LossSums{1000 + alone.sums.loss_steps, 20 + alone.sums.correct, 32, 4}));
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
  EXPECT_EQ(loss(wrong.sums), 1e9);
  EXPECT_TRUE(same_bits(wrong.gradient, {kScale, -kScale}));
}

TEST_P(LossContract, CountsACallWithoutAFiniteLossAndAddsNoLossForIt) {
  constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  const LossSums before{77, 0, 0, 0};
  for (const std::vector<float>& bad :
       {std::vector<float>{1, kNan, 0}, {kNan, kNan, kNan}, {kInfinity, 0, 0}, {0, 0, -kInfinity}, {3e30f, 0, 0}}) {
    std::vector<float> logits{4, 1, 0};
    logits.insert(logits.end(), bad.begin(), bad.end());
    const LossOutcome got = run({2, 3}, logits, {0, 2}, true, before);
    EXPECT_EQ(got.sums.loss_steps, 77) << bad[0];
    EXPECT_EQ(got.sums.not_finite, 1) << bad[0];
    EXPECT_EQ(got.sums.samples, 2) << bad[0];
    EXPECT_EQ(got.sums.correct, 1) << bad[0];
  }
}

TEST_P(LossContract, NeverTakesALogitThatIsNoNumberForTheAnswer) {
  constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
  EXPECT_EQ(run({1, 3}, {kNan, 0, 1}, {0}).sums.correct, 0);
  EXPECT_EQ(run({1, 3}, {kNan, 0, 1}, {2}).sums.correct, 1);
}

// Each call rounds its sum once, to half a unit; so this holds to one unit for each call, and exactly for
// calls cut alike: which is what makes sums over parts independent of the ranks that play them.
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
  EXPECT_NEAR(static_cast<double>(pieces.loss_steps), static_cast<double>(whole.loss_steps), 9);
  EXPECT_EQ(pieces.correct, whole.correct);
  EXPECT_EQ(pieces.samples, whole.samples);
  LossSums backwards;
  for (auto piece = each.rbegin(); piece != each.rend(); ++piece) {
    backwards.loss_steps += piece->loss_steps;
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
