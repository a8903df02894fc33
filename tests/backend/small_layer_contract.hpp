#pragma once
// What every backend's networks must do from end to end, on cases that are small enough for finite
// differences. A backend's own test instantiates SmallLayerContract over small_cases().

#include "backend/layer_contract.hpp"

namespace tutti::testing_support {

class SmallLayerContract : public LayerContract {
 protected:
  // The whole network's output by the naive loops, for the first samples of the input.
  std::vector<double> reference_output(std::int64_t batch) const {
    const Shape shape = network().sample.batch_of(batch);
    reference::Array values(shape, std::span(input_).first(static_cast<std::size_t>(shape.elements())));
    for (std::size_t i = 0; i < network().layers.size(); ++i) {
      values = reference::layer_forward(network().layers[i], values, parameters_of(i));
    }
    return values.values;
  }
};

TEST_P(SmallLayerContract, BackwardEqualsFiniteDifferencesOfTheNaiveLoops) {
  NetworkPlan plan(device_, network(), weights_);
  plan.forward(input_);
  const auto output_weights = output_gradient(plan);
  const auto gradients = plan.backward(output_weights);

  std::vector<std::vector<reference::Array>> parameters;
  for (std::size_t i = 0; i < plan.layers(); ++i) parameters.push_back(parameters_of(i));
  reference::Array input(plan.activation(0).shape, input_);
  const auto objective = [&] {
    reference::Array values = input;
    for (std::size_t i = 0; i < plan.layers(); ++i) {
      values = reference::layer_forward(network().layers[i], values, parameters[i]);
    }
    double sum = 0;
    for (std::size_t i = 0; i < values.values.size(); ++i) sum += values.values[i] * output_weights[i];
    return sum;
  };
  const auto differences = [&](std::vector<double>& values) {
    constexpr double kStep = 1e-6;
    std::vector<double> result;
    for (double& value : values) {
      const double kept = value;
      value = kept + kStep;
      const double above = objective();
      value = kept - kStep;
      result.push_back((above - objective()) / (2 * kStep));
      value = kept;
    }
    return result;
  };

  EXPECT_TRUE(close(gradients[0], differences(input.values), 10 * tolerance())) << "input";
  std::size_t next = 1;
  for (auto& layer : parameters) {
    for (auto& parameter : layer) {
      EXPECT_TRUE(close(gradients.at(next), differences(parameter.values), 10 * tolerance())) << "gradient " << next;
      ++next;
    }
  }
  EXPECT_EQ(next, gradients.size());
}

TEST_P(SmallLayerContract, TakesChangedWeightsAtTheNextRefreshInPlansMadeBeforeAndAfter) {
  NetworkPlan before(device_, network(), weights_);
  before.forward(input_);
  weights_.change("changed");
  weights_.refresh();
  NetworkPlan after(device_, network(), weights_, {LayerMode::evaluation, false});
  NetworkCase alone = network();
  alone.batch = 1;
  NetworkPlan single(device_, alone, weights_);

  EXPECT_TRUE(close(before.forward(input_), reference_output(network().batch), 10 * tolerance()));
  EXPECT_TRUE(close(after.forward(input_), reference_output(network().batch), 10 * tolerance()));
  const std::vector<float> first(input_.begin(), input_.begin() + network().sample.elements());
  EXPECT_TRUE(close(single.forward(first), reference_output(1), 10 * tolerance()));
}

}  // namespace tutti::testing_support
