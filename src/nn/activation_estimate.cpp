#include "tutti/nn/activation_estimate.hpp"

#include "activation_plan.hpp"

#include <utility>
#include <variant>
#include <vector>

namespace tutti {
namespace {

// As backends do: what can be known of the gradient from the result alone needs no input.
ActivationUse use_of(const NetworkLayer& layer) {
  const bool relu = std::visit(
      [](const auto& spec) {
        if constexpr (requires { spec.relu; }) return spec.relu;
        return false;
      },
      layer.spec);
  const bool reads_input = std::holds_alternative<Conv2dSpec>(layer.spec) ||
                           std::holds_alternative<LinearSpec>(layer.spec) ||
                           std::holds_alternative<BatchNormSpec>(layer.spec);
  return {.output_bytes = 0, .reads_input = reads_input, .reads_output = relu, .leaves_residual_gradient = true};
}

}  // namespace

std::size_t estimate_activations(const Network& network, const PassSize& pass) {
  std::vector<ActivationUse> uses;
  for (const NetworkLayer& layer : network.layers()) {
    uses.push_back(use_of(layer));
    uses.back().output_bytes = static_cast<std::size_t>(pass.samples * layer.output.elements()) * pass.bytes_per_value;
  }
  return ActivationPlan(network, std::move(uses), pass.mode).memory().bytes();
}

}  // namespace tutti
