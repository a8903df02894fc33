#pragma once
// End-to-end tests of every backend's networks, on cases that are small enough for finite differences. The test of each
// backend instantiates SmallNetworkContract over small_cases().

#include "backend/layer_contract.hpp"

#include <numeric>

namespace tutti::testing_support {

class SmallNetworkContract : public LayerContract {
 protected:
  using Parameters = std::vector<std::vector<reference::Array>>;

  Parameters all_parameters() const {
    Parameters all;
    for (std::size_t i = 0; i < network().layers.size(); ++i) all.push_back(parameters_of(i));
    return all;
  }
  // The whole network's output by the naive loops. Batch norms of a frozen one use running statistics.
  static std::vector<double> reference_output(const reference::Array& input, const Parameters& parameters,
                                              LayerMode mode, bool frozen = false) {
    std::vector<reference::Array> activations{input};
    for (std::size_t i = 0; i < network().layers.size(); ++i) {
      const reference::Array* residual = nullptr;
      for (const ResidualCase& added : network().residuals) {
        if (added.layer == i) residual = &activations[added.activation];
      }
      const bool is_fixed = frozen && std::holds_alternative<BatchNormSpec>(network().layers[i]);
      activations.push_back(reference::layer_forward(
          network().layers[i],
          {activations.back(), residual, is_fixed ? LayerMode::evaluation : mode, kPlace, kPurpose}, parameters[i]));
    }
    return activations.back().values;
  }
  reference::Array first_samples(std::int64_t batch) const {
    const Shape shape = network().sample.batch_of(batch);
    return {shape, std::span(input_).first(static_cast<std::size_t>(shape.elements()))};
  }
  void expect_finite_differences(bool frozen);
  static double chain_tolerance() { return std::get<0>(GetParam()).chain_tolerance; }
};

inline void SmallNetworkContract::expect_finite_differences(bool frozen) {
  NetworkPlan plan(device_, network(), weights_, {.frozen = frozen});
  plan.forward(input_);
  const auto output_weights = output_gradient(plan);
  const auto gradients = plan.backward(output_weights);

  Parameters parameters = all_parameters();
  reference::Array input = first_samples(network().batch);
  const auto objective = [&] {
    const auto values = reference_output(input, parameters, LayerMode::training, frozen);
    return std::inner_product(values.begin(), values.end(), output_weights.begin(), 0.0);
  };
  const auto differences = [&](std::vector<double>& values) {
    constexpr double kStep = 1e-6;
    std::vector<double> result;
    for (double& value : values) {
      const double original = value;
      value = original + kStep;
      const double above = objective();
      value = original - kStep;
      result.push_back((above - objective()) / (2 * kStep));
      value = original;
    }
    return result;
  };

  EXPECT_TRUE(close_in_norm(gradients[0], differences(input.values), chain_tolerance())) << "input";
  std::size_t next = 1;
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    const auto kinds = tutti::parameters(network().layers[i], plan.activation(i).shape.without_first());
    for (std::size_t p = 0; p < kinds.size(); ++p, ++next) {
      if (is_statistic(kinds[p].kind)) continue;
      EXPECT_TRUE(close_in_norm(gradients.at(next), differences(parameters[i][p].values), chain_tolerance()))
          << name_of(kinds[p].kind) << " of layer " << i;
    }
  }
  EXPECT_EQ(next, gradients.size());
}

TEST_P(SmallNetworkContract, BackwardEqualsFiniteDifferencesOfTheNaiveLoops) { expect_finite_differences(false); }

TEST_P(SmallNetworkContract, FrozenBackwardEqualsFiniteDifferencesWithRunningStatistics) {
  expect_finite_differences(true);
}

TEST_P(SmallNetworkContract, UsesChangedWeightsAfterARefreshInPlansMadeBeforeAndAfter) {
  NetworkPlan before(device_, network(), weights_);
  before.forward(input_);
  weights_.change("changed");
  weights_.refresh();
  NetworkPlan after(device_, network(), weights_, {LayerMode::evaluation, false});
  NetworkCase alone = network();
  alone.batch = 1;
  NetworkPlan single(device_, alone, weights_);

  const auto expect_output = [&](NetworkPlan& plan, const reference::Array& input, LayerMode mode) {
    const std::vector<float> values(input.values.begin(), input.values.end());
    EXPECT_TRUE(
        close_in_norm(plan.forward(values), reference_output(input, all_parameters(), mode), chain_tolerance()));
  };
  expect_output(before, first_samples(network().batch), LayerMode::training);
  expect_output(after, first_samples(network().batch), LayerMode::evaluation);
  expect_output(single, first_samples(1), LayerMode::training);
}

}  // namespace tutti::testing_support
