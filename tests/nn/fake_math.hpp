#pragma once
// Layers so simple that any graph of them can be checked: every one works channel by channel on samples of C, 1, 1, or
// is linear. They do not compute the operations of their specs, but have the same inputs and residuals.

#include "tutti/backend/layer_spec.hpp"

#include <cstddef>
#include <vector>

namespace tutti::testing_support {

using Values = std::vector<double>;

struct FakePass {
  const LayerSpec& spec;
  std::size_t channels;  // of the input
  std::vector<Values> parameters;
  Values input;
  Values residual{};  // empty: none
};

struct FakeGradients {
  Values input;
  Values residual;
  std::vector<Values> parameters;  // statistics in place of gradients for mean and variance
};

inline bool clips(const LayerSpec& spec) {
  const auto* norm = std::get_if<BatchNormSpec>(&spec);
  const auto* add = std::get_if<AddSpec>(&spec);
  return (norm != nullptr && norm->relu) || (add != nullptr && add->relu);
}

inline Values linear_forward(const FakePass& pass, std::size_t units) {
  const std::size_t samples = pass.input.size() / pass.channels;
  Values output(samples * units);
  for (std::size_t i = 0; i < output.size(); ++i) {
    output[i] = pass.parameters[1][i % units];
    for (std::size_t c = 0; c < pass.channels; ++c) {
      output[i] += pass.parameters[0][i % units * pass.channels + c] * pass.input[i / units * pass.channels + c];
    }
  }
  return output;
}

inline Values fake_forward(const FakePass& pass) {
  if (const auto* linear = std::get_if<LinearSpec>(&pass.spec)) {
    return linear_forward(pass, static_cast<std::size_t>(linear->units));
  }
  Values output = pass.input;
  for (std::size_t i = 0; i < output.size(); ++i) {
    const std::size_t c = i % pass.channels;
    if (!pass.parameters.empty()) output[i] = output[i] * pass.parameters[0][c] + pass.parameters[1][c];
    if (!pass.residual.empty()) output[i] += pass.residual[i];
    if (clips(pass.spec) && output[i] < 0) output[i] = 0;
  }
  return output;
}

inline FakeGradients fake_backward(const FakePass& pass, const Values& output, Values gradient,
                                   double sample_fraction) {
  FakeGradients result{Values(pass.input.size()), {}, {}};
  for (const Values& parameter : pass.parameters) result.parameters.emplace_back(parameter.size());
  if (const auto* linear = std::get_if<LinearSpec>(&pass.spec)) {
    const auto units = static_cast<std::size_t>(linear->units);
    for (std::size_t i = 0; i < gradient.size(); ++i) {
      result.parameters[1][i % units] += gradient[i];
      for (std::size_t c = 0; c < pass.channels; ++c) {
        const std::size_t weight = i % units * pass.channels + c;
        const std::size_t input = i / units * pass.channels + c;
        result.parameters[0][weight] += gradient[i] * pass.input[input];
        result.input[input] += gradient[i] * pass.parameters[0][weight];
      }
    }
    return result;
  }
  const std::size_t samples = pass.input.size() / pass.channels;
  for (std::size_t i = 0; i < gradient.size(); ++i) {
    const std::size_t c = i % pass.channels;
    if (clips(pass.spec) && !(output[i] > 0)) gradient[i] = 0;
    result.input[i] = gradient[i];
    if (pass.parameters.empty()) continue;
    result.input[i] *= pass.parameters[0][c];
    result.parameters[0][c] += gradient[i] * pass.input[i];
    result.parameters[1][c] += gradient[i];
    result.parameters[2][c] += pass.input[i] / static_cast<double>(samples) * sample_fraction;
    result.parameters[3][c] += pass.input[i] * pass.input[i] * sample_fraction;
  }
  if (!pass.residual.empty()) result.residual = std::move(gradient);
  return result;
}

// The gradient of the fake loss: half the squared distance of each logit from its sample's label.
inline double fake_loss_gradient(double logit, std::int32_t label, float gradient_scale) {
  return (logit - label) * gradient_scale;
}

}  // namespace tutti::testing_support
