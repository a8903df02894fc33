#pragma once
// Layers of one spec on values chosen for it, on every backend and in all of its layouts: batch norm far from zero, of
// one value and of NaN, and dropout's masks.

#include "backend/layer_contract.hpp"
#include "backend/single_layer.hpp"

namespace tutti::testing_support {

class SpecialValuesContract : public ::testing::TestWithParam<BackendUnderTest> {
 protected:
  SpecialValuesContract() : device_(GetParam().make()) {}

  // A layer of one spec on images of this shape, with its own weights.
  struct Alone {
    NetworkCase network;
    NetworkWeights weights;
    SingleLayer layer;

    Alone(Device& device, const LayerSpec& spec, const SingleLayerOptions& options)
        : network{"Alone", options.input.shape[0], options.input.shape.without_first(), {spec}},
          weights(device, network),
          layer(device, spec, options, weights) {}
  };

  template <class Try>
  void for_each_layout(const Shape& shape, Try try_it) {
    for (const LayoutUnderTest& layout : GetParam().layouts) {
      SCOPED_TRACE(layout.name);
      try_it(layout.of(shape));
    }
  }

  Device device_;
};

TEST_P(SpecialValuesContract, IsPreciseWhereTheMeanIsAThousandTimesTheDeviation) {
  const Shape shape{8, 20, 13, 11};
  auto values = random_floats(shape.elements(), "far from zero");
  for (float& value : values) value = 1000 + 1.7f * value;
  values[0] = 900;  // and the first value is far from the others
  const reference::Array input(shape, values);
  for_each_layout(shape, [&](const ActivationSpec& activation) {
    Alone norm(device_, BatchNormSpec{}, {.input = activation});
    const std::vector<float> got = norm.layer.forward(values, {});
    const auto statistics = norm.layer.backward({random_floats(shape.elements(), "gradient")}).parameters;
    const auto moments = reference::batch_moments(input);
    for (std::size_t c = 0; c < moments.size(); ++c) {
      EXPECT_NEAR(statistics[2][c], moments[c].mean * kShare, 1e-6 * 1000);
      const double unbiased = moments[c].variance * moments[c].count / (moments[c].count - 1);
      EXPECT_NEAR(statistics[3][c] / (unbiased * kShare), 1, 5e-5) << c;
    }
    std::vector<reference::Array> parameters;
    for (const auto& one : norm.weights.values(0)) parameters.emplace_back(Shape{20}, one);
    const auto expected = reference::layer_forward(BatchNormSpec{}, {input}, parameters);
    EXPECT_TRUE(close(got, expected.values, 3e-5));
  });
}

TEST_P(SpecialValuesContract, OneValuePerChannelIsFinite) {
  const Shape shape{1, 20, 1, 1};
  for_each_layout(shape, [&](const ActivationSpec& activation) {
    Alone norm(device_, BatchNormSpec{}, {.input = activation});
    EXPECT_TRUE(same_bits(norm.layer.forward(random_floats(20, "one"), {}), norm.weights.values(0)[1]));
    const SingleGradients gradients = norm.layer.backward({random_floats(20, "gradient")});
    for (const float value : gradients.input) EXPECT_NEAR(value, 0, 1e-4);
    EXPECT_TRUE(same_bits(gradients.parameters[3], std::vector<float>(20, 0.0f)));
  });
}

TEST_P(SpecialValuesContract, ConstantImagesAreShiftedOnly) {
  const Shape shape{3, 20, 5, 5};
  for_each_layout(shape, [&](const ActivationSpec& activation) {
    Alone norm(device_, BatchNormSpec{}, {.input = activation});
    const auto output = norm.layer.forward(std::vector<float>(static_cast<std::size_t>(shape.elements()), 0.7f), {});
    for (std::size_t i = 0; i < output.size(); ++i) {
      ASSERT_NEAR(output[i], norm.weights.values(0)[1][i / 25 % 20], 1e-5) << i;
    }
  });
}

TEST_P(SpecialValuesContract, NanReachesTheOutputThroughRelu) {
  const Shape shape{2, 20, 3, 3};
  auto values = random_floats(shape.elements(), "bad");
  values[0] = std::numeric_limits<float>::quiet_NaN();
  for_each_layout(shape, [&](const ActivationSpec& activation) {
    Alone norm(device_, BatchNormSpec{.relu = true}, {.input = activation});
    EXPECT_TRUE(std::isnan(norm.layer.forward(values, {})[0]));
  });
}

TEST_P(SpecialValuesContract, FunctionsAreFiniteForAnyFiniteValueAndHaveTheirLimits) {
  const std::vector<float> values{0, -0.0f, 1e-30f, 5, -5, 14, -14, 100, -100, 1e38f, -1e38f};
  for (const auto& [function, factor] : function_examples()) {
    if (function == Function::scale) continue;
    for_each_layout({1, 11, 1, 1}, [&](const ActivationSpec& activation) {
      Alone alone(device_, ElementwiseSpec{function}, {.input = activation});
      const auto got = alone.layer.forward(values, {});
      const auto gradient = alone.layer.backward({std::vector<float>(values.size(), 1.0f)}).input;
      for (std::size_t i = 0; i < values.size(); ++i) {
        const double x = values[i];
        EXPECT_NEAR(got[i], reference::value_of({function}, x), 1e-6 * std::max(1.0, x)) << name_of(function) << x;
        EXPECT_NEAR(gradient[i], reference::derivative_of({function}, x), 1e-6) << name_of(function) << x;
      }
    });
  }
}

TEST_P(SpecialValuesContract, DropoutDropsTheSameValuesInEveryLayoutAndHoweverTheBatchIsCut) {
  const Shape shape{4, 20, 5, 3};
  const auto values = random_floats(shape.elements(), "dropped");
  const auto dropped = [&](const ActivationSpec& activation, std::int64_t first, std::uint32_t step) {
    const std::vector<float> from(values.begin() + first * 300, values.begin() + (first + activation.shape[0]) * 300);
    BatchPosition place{.seed = 1, .step = step, .first_position = static_cast<std::uint32_t>(first)};
    return Alone(device_, DropoutSpec{0.3}, {.input = activation, .place = place}).layer.forward(from, {});
  };
  const auto whole = dropped(GetParam().layouts[0].of(shape), 0, 7);
  for (const LayoutUnderTest& layout : GetParam().layouts) {
    EXPECT_TRUE(same_bits(dropped(layout.of(shape), 0, 7), whole));
    auto pieces = dropped(layout.of(shape.with_first(1)), 0, 7);
    const auto rest = dropped(layout.of(shape.with_first(3)), 1, 7);
    pieces.insert(pieces.end(), rest.begin(), rest.end());
    EXPECT_TRUE(same_bits(pieces, whole));
  }
  EXPECT_FALSE(same_bits(dropped(GetParam().layouts[0].of(shape), 0, 8), whole));
  const auto zeros = static_cast<double>(std::ranges::count(whole, 0.0f));
  EXPECT_NEAR(zeros / static_cast<double>(whole.size()), 0.3, 0.05);
}

}  // namespace tutti::testing_support
