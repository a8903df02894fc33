#pragma once
// Tests of every backend's layers with any layout of their input and any number of readers of their output. The test of
// each backend instantiates LayoutContract over layout_cases(), with its layouts.

#include "backend/layer_contract.hpp"
#include "backend/single_layer.hpp"

namespace tutti::testing_support {

// The layers whose loops are our own on all backends, not a library's.
inline std::vector<NetworkCase> own_layer_layout_cases() {
  std::vector<NetworkCase> cases;
  const auto add = [&](const std::string& name, std::int64_t batch, const Shape& sample) {
    cases.push_back({"Norm" + name, batch, sample, {BatchNormSpec{kNoAdd, kNoRelu}}});
    cases.push_back({"NormRelu" + name, batch, sample, {BatchNormSpec{kNoAdd, kRelu}}});
    cases.push_back({"NormAdd" + name, batch, sample, {BatchNormSpec{kAdd, kNoRelu}}});
    cases.push_back({"NormAddRelu" + name, batch, sample, {BatchNormSpec{kAdd, kRelu}}});
    cases.push_back({"Add" + name, batch, sample, {AddSpec{kNoRelu}}});
    cases.push_back({"AddRelu" + name, batch, sample, {AddSpec{kRelu}}});
    cases.push_back({"Average" + name, batch, sample, {GlobalAveragePoolSpec{}}});
    cases.push_back({"Dropout" + name, batch, sample, {DropoutSpec{0.4}}});
    for (const ElementwiseSpec& spec : function_examples())
      cases.push_back({title_of(spec) + name, batch, sample, {spec}});
  };
  add("Of3", 2, {3, 9, 7});
  add("Of20", 3, {20, 5, 7});
  add("Of50InOneSample", 1, {50, 3, 3});
  add("Of64", 2, {64, 4, 4});
  add("Of16InLargeImages", 2, {16, 37, 41});
  add("Of100InManySamples", 33, {100, 4, 3});
  add("OfOnePixel", 5, {20, 1, 1});
  add("OfOneChannel", 3, {1, 6, 5});
  return cases;
}

inline std::vector<NetworkCase> layout_cases() {
  std::vector<NetworkCase> cases = own_layer_layout_cases();
  cases.push_back({"MaxPool", 2, {20, 9, 8}, {Pool2dSpec{Pooling::max, 3, 2, 1}}});
  cases.push_back({"AveragePool", 2, {32, 6, 6}, {Pool2dSpec{Pooling::average, 2, 2, 1}}});
  cases.push_back({"Conv", 2, {16, 6, 6}, {Conv2dSpec{20, 3, 1, 1, kBias, kRelu}}});
  cases.push_back({"Linear", 3, {20, 3, 3}, {LinearSpec{7, kBias, kRelu}}});
  return cases;
}

class LayoutContract : public LayerContract {
 protected:
  static const LayerSpec& spec() { return network().layers[0]; }
  static const std::vector<LayoutUnderTest>& layouts() { return std::get<0>(GetParam()).layouts; }
  static Shape shape() { return network().sample.batch_of(network().batch); }

  // Calls try_it(layer options, its name) for every layout of the input, and of the residual if there is one.
  template <class Try>
  void for_each_layout(LayerMode mode, Try try_it) {
    for (const LayoutUnderTest& input : layouts()) {
      if (!takes_residual(spec())) {
        try_it(SingleLayerOptions{.input = input.of(shape()), .mode = mode}, input.name);
        continue;
      }
      for (const LayoutUnderTest& residual : layouts()) {
        is_mixed_ = &residual != &input;
        try_it(SingleLayerOptions{.input = input.of(shape()), .residual = residual.of(shape()), .mode = mode},
               input.name + " + " + residual.name);
      }
    }
  }
  // Values as they are once stored in a layout, which may round them.
  std::vector<float> stored(const ActivationSpec& activation, const std::vector<float>& values) {
    if (!activation.format) return values;
    const Buffer buffer = device_.backend().allocate(activation.bytes);
    device_.set_values(activation, buffer, values);
    return device_.values_of(activation, buffer);
  }
  std::vector<std::vector<float>> output_gradients(const SingleLayer& layer, int count) {
    std::vector<std::vector<float>> gradients;
    for (int i = 0; i < count; ++i) {
      gradients.push_back(
          stored(layer.output(), random_floats(layer.output().shape.elements(), "gradient " + std::to_string(i))));
    }
    return gradients;
  }
  void expect_gradients(const SingleGradients& got, const reference::BackwardInputs& pass);

  bool is_mixed_ = false;  // the residual of the layer that is tried has another layout than its input
  std::vector<float> residual_ = random_floats(shape().elements(), "residual");
};

inline void LayoutContract::expect_gradients(const SingleGradients& got, const reference::BackwardInputs& pass) {
  const auto expected = reference::layer_backward(spec(), pass, parameters_of(0));
  std::vector<float> input = got.input;
  std::vector<double> expected_values = expected.input.values;
  if (const auto* pool = std::get_if<Pool2dSpec>(&spec())) {
    const auto undecided = reference::undecided(*pool, pass.input, pass.output.shape);
    for (std::size_t i = 0; i < expected_values.size(); ++i) {
      if (undecided[i]) expected_values[i] = input[i] = 0;
    }
  }
  EXPECT_TRUE(close(input, expected_values, tolerance()));
  if (expected.residual) {
    EXPECT_TRUE(close(got.residual, expected.residual->values, tolerance()));
  }
  ASSERT_EQ(got.parameters.size(), expected.parameters.size());
  for (std::size_t p = 0; p < got.parameters.size(); ++p) {
    EXPECT_TRUE(close(got.parameters[p], expected.parameters[p].values, tolerance())) << "parameter " << p;
  }
}

TEST_P(LayoutContract, ForwardEqualsTheNaiveLoopsInEveryLayout) {
  for (const LayerMode mode : {LayerMode::training, LayerMode::evaluation}) {
    for_each_layout(mode, [&](const SingleLayerOptions& options, const std::string& name) {
      SCOPED_TRACE(name);
      SingleLayer layer(device_, spec(), options, weights_);
      const reference::Array input(shape(), stored(options.input, input_));
      const reference::Array residual(shape(), stored(options.residual, residual_));
      const auto expected =
          reference::layer_forward(spec(), {input, &residual, mode, kPlace, kPurpose}, parameters_of(0));
      EXPECT_TRUE(close(layer.forward(input_, residual_), expected.values, tolerance()));
    });
  }
}

TEST_P(LayoutContract, BackwardOfOneToThreeGradientsEqualsTheNaiveLoopsInEveryLayout) {
  for_each_layout(LayerMode::training, [&](const SingleLayerOptions& options, const std::string& name) {
    SingleLayer layer(device_, spec(), options, weights_);
    const reference::Array input(shape(), stored(options.input, input_));
    const reference::Array output(layer.output().shape, layer.forward(input_, residual_));
    // Every pair of layouts is tried with the sum of two gradients, and equal ones with all numbers of them.
    for (int count = is_mixed_ ? 2 : 1; count <= (is_mixed_ ? 2 : 3); ++count) {
      SCOPED_TRACE(name + ", " + std::to_string(count) + " gradients");
      reference::Array gradient(output.shape);
      const auto gradients = output_gradients(layer, count);
      for (const auto& one : gradients) {
        for (std::size_t i = 0; i < one.size(); ++i) gradient.values[i] += one[i];
      }
      expect_gradients(layer.backward(gradients), {input, output, gradient, kPlace, kPurpose, kShare});
    }
  });
}

TEST_P(LayoutContract, GivesTheSameBitsAgainWritesNothingElseAndKeepsTheInputInEveryLayout) {
  for_each_layout(LayerMode::training, [&](const SingleLayerOptions& options, const std::string& name) {
    SCOPED_TRACE(name);
    SingleLayer layer(device_, spec(), options, weights_);
    SingleLayer second(device_, spec(), options, weights_);
    const auto output = layer.forward(input_, residual_);
    const auto gradients = output_gradients(layer, 2);
    const SingleGradients first = layer.backward(gradients);
    for (SingleLayer* again : {&layer, &second}) {
      EXPECT_TRUE(same_bits(again->forward(input_, residual_), output));
      const SingleGradients repeated = again->backward(gradients);
      EXPECT_TRUE(same_bits(repeated.input, first.input));
      EXPECT_TRUE(same_bits(repeated.residual, first.residual));
      for (std::size_t p = 0; p < first.parameters.size(); ++p) {
        EXPECT_TRUE(same_bits(repeated.parameters[p], first.parameters[p])) << p;
      }
      EXPECT_TRUE(again->wrote_nothing_else());
      EXPECT_TRUE(same_bits(again->input(), stored(options.input, input_)));
    }
  });
}

TEST_P(LayoutContract, GivesTheOtherGradientsTheSameBitsWithoutAnInputGradient) {
  for_each_layout(LayerMode::training, [&](SingleLayerOptions options, const std::string& name) {
    SCOPED_TRACE(name);
    SingleLayer with(device_, spec(), options, weights_);
    options.wants_input_gradient = false;
    SingleLayer without(device_, spec(), options, weights_);
    EXPECT_TRUE(same_bits(without.forward(input_, residual_), with.forward(input_, residual_)));
    const auto gradients = output_gradients(with, 1);
    const SingleGradients expected = with.backward(gradients);
    for (const SingleGradients& got : {without.backward(gradients), with.backward(gradients, false)}) {
      EXPECT_TRUE(std::ranges::all_of(got.input, [](float value) { return std::isnan(value); }));
      EXPECT_TRUE(same_bits(got.residual, expected.residual));
      for (std::size_t p = 0; p < expected.parameters.size(); ++p) {
        EXPECT_TRUE(same_bits(got.parameters[p], expected.parameters[p])) << p;
      }
    }
  });
}

}  // namespace tutti::testing_support
