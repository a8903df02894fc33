#pragma once
// Tests of every backend's single layers. The test of each backend instantiates LayerContract over all_cases().

#include "backend/comparison.hpp"
#include "backend/network.hpp"
#include "reference/layer.hpp"

#include <gtest/gtest.h>

#include <functional>
#include <tuple>

namespace tutti::testing_support {

// A way to store images, by its name.
struct LayoutUnderTest {
  std::string name;
  std::function<ActivationSpec(const Shape&)> of;
};

struct BackendUnderTest {
  std::string name;
  std::function<std::unique_ptr<Backend>()> make;
  double tolerance;                        // relative to the greatest value of a tensor
  double chain_tolerance;                  // of a chain's gradients, relative in norm
  std::vector<LayoutUnderTest> layouts{};  // possible layouts of a layer's input
};

inline std::ostream& operator<<(std::ostream& out, const BackendUnderTest& backend) { return out << backend.name; }

using LayerContractParameter = std::tuple<BackendUnderTest, NetworkCase>;

inline std::string layer_contract_name(const ::testing::TestParamInfo<LayerContractParameter>& info) {
  return std::get<1>(info.param).name;
}

class LayerContract : public ::testing::TestWithParam<LayerContractParameter> {
 protected:
  LayerContract()
      : device_(std::get<0>(GetParam()).make()),
        weights_(device_, network()),
        input_(random_floats(network().sample.batch_of(network().batch).elements(), "input")) {}

  static const NetworkCase& network() { return std::get<1>(GetParam()); }
  static double tolerance() { return std::get<0>(GetParam()).tolerance; }

  std::vector<float> output_gradient(const NetworkPlan& plan) const {
    return random_floats(plan.activation(plan.layers()).shape.elements(), "output gradient");
  }
  reference::Array array(const ActivationSpec& activation, const Buffer& buffer) {
    return {activation.shape, device_.values_of(activation, buffer)};
  }
  std::vector<reference::Array> parameters_of(std::size_t layer) const {
    std::vector<reference::Array> arrays;
    for (std::size_t i = 0; i < weights_.values(layer).size(); ++i) {
      arrays.emplace_back(weights_.tensors(layer)[i].shape, weights_.values(layer)[i]);
    }
    return arrays;
  }
  // What layer i of the plan is given in its forward pass; `added` is memory for the residual.
  reference::ForwardInputs forward_inputs(const NetworkPlan& plan, std::size_t i, const reference::Array& input,
                                          std::optional<reference::Array>& added, LayerMode mode) {
    if (const auto& residual = plan.step(i).residual) added = array(plan.activation(*residual), plan.values(*residual));
    return {input, added ? &*added : nullptr, mode, kPlace, kPurpose};
  }
  void expect_input_gradient(NetworkPlan& plan, std::size_t i, const reference::BackwardInputs& pass,
                             const reference::Array& expected);

  Device device_;
  NetworkWeights weights_;
  std::vector<float> input_;
};

// A backend may choose any of equal values as the greatest of a window, so only the sum of their gradients is checked.
inline void LayerContract::expect_input_gradient(NetworkPlan& plan, std::size_t i,
                                                 const reference::BackwardInputs& pass,
                                                 const reference::Array& expected) {
  std::vector<float> got = plan.gradient(i);
  std::vector<double> expected_values = expected.values;
  if (const auto* pool = std::get_if<Pool2dSpec>(&network().layers[i])) {
    const std::vector<bool> undecided = reference::undecided(*pool, pass.input, pass.output.shape);
    double sum_got = 0;
    double sum_wanted = 0;
    for (std::size_t k = 0; k < expected_values.size(); ++k) {
      sum_got += got[k];
      sum_wanted += expected_values[k];
      if (undecided[k]) expected_values[k] = got[k] = 0;
    }
    EXPECT_NEAR(sum_got, sum_wanted, tolerance() * static_cast<double>(pass.output_gradient.values.size()));
  }
  EXPECT_TRUE(close(got, expected_values, tolerance())) << "input gradient of layer " << i;
}

TEST_P(LayerContract, ForwardEqualsTheNaiveLoopsLayerByLayer) {
  for (const LayerMode mode : {LayerMode::training, LayerMode::evaluation}) {
    NetworkPlan plan(device_, network(), weights_, {mode, true});
    plan.forward(input_);
    for (std::size_t i = 0; i < plan.layers(); ++i) {
      const auto input = array(plan.activation(i), plan.values(i));
      std::optional<reference::Array> added;
      const auto expected =
          reference::layer_forward(network().layers[i], forward_inputs(plan, i, input, added, mode), parameters_of(i));
      EXPECT_EQ(plan.activation(i + 1).shape, expected.shape);
      const auto got = device_.values_of(plan.activation(i + 1), plan.values(i + 1));
      EXPECT_TRUE(close(got, expected.values, tolerance())) << "output of layer " << i;
    }
  }
}

TEST_P(LayerContract, BackwardEqualsTheNaiveLoopsLayerByLayer) {
  NetworkPlan plan(device_, network(), weights_);
  plan.forward(input_);
  plan.begin_backward(output_gradient(plan));
  for (std::size_t i = plan.layers(); i-- > 0;) {
    const auto input = array(plan.activation(i), plan.values(i));
    const auto output = array(plan.activation(i + 1), plan.values(i + 1));
    const reference::Array gradient(plan.activation(i + 1).shape, plan.whole_gradient(i + 1));
    const reference::BackwardInputs pass{input, output, gradient, kPlace, kPurpose, kShare};
    const auto expected = reference::layer_backward(network().layers[i], pass, parameters_of(i));
    plan.backward_layer(i);

    expect_input_gradient(plan, i, pass, expected.input);
    if (plan.step(i).residual) {
      EXPECT_TRUE(close(plan.residual_gradient(i), expected.residual.value().values, tolerance())) << "layer " << i;
    }
    ASSERT_EQ(plan.step(i).block.gradients.size(), expected.parameters.size());
    for (std::size_t p = 0; p < expected.parameters.size(); ++p) {
      const auto got = device_.download<float>(plan.step(i).block.gradients[p]);
      EXPECT_TRUE(close(got, expected.parameters[p].values, tolerance())) << "gradient " << p << " of layer " << i;
    }
  }
}

TEST_P(LayerContract, GivesTheSameBitsAgainAndInASecondPlanWithAnyMemory) {
  NetworkPlan plan(device_, network(), weights_);
  NetworkPlan second(device_, network(), weights_);
  const auto output = plan.forward(input_);
  const auto gradients = plan.backward(output_gradient(plan));
  for (NetworkPlan* again : {&plan, &second}) {
    EXPECT_TRUE(same_bits(again->forward(input_), output));
    const auto repeated = again->backward(output_gradient(plan));
    ASSERT_EQ(repeated.size(), gradients.size());
    for (std::size_t i = 0; i < gradients.size(); ++i) EXPECT_TRUE(same_bits(repeated[i], gradients[i])) << i;
  }
}

TEST_P(LayerContract, WritesOnlyTheGradientsAndDoesNotChangeTheInput) {
  NetworkPlan plan(device_, network(), weights_);
  plan.forward(input_);
  plan.backward(output_gradient(plan));
  EXPECT_TRUE(same_bits(device_.values_of(plan.activation(0), plan.values(0)), input_));
  for (std::size_t i = 0; i < plan.layers(); ++i) {
    EXPECT_TRUE(plan.step(i).block.is_untouched_elsewhere(device_)) << "layer " << i;
  }
}

TEST_P(LayerContract, GivesTheSameParameterGradientsWithoutAnInputGradient) {
  NetworkPlan with(device_, network(), weights_);
  NetworkPlan without(device_, network(), weights_, {LayerMode::training, false});
  EXPECT_TRUE(same_bits(without.forward(input_), with.forward(input_)));
  const auto expected = with.backward(output_gradient(with));
  const auto got = without.backward(output_gradient(with));
  ASSERT_EQ(got.size(), expected.size());
  EXPECT_TRUE(std::ranges::all_of(without.gradient(0), [](float value) { return std::isnan(value); }));
  for (std::size_t i = 1; i < got.size(); ++i) EXPECT_TRUE(same_bits(got[i], expected[i])) << i;
}

}  // namespace tutti::testing_support
