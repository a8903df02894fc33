#include "pass_plan.hpp"

#include "tutti/base/random.hpp"

#include <utility>

namespace tutti {

PassPlan::PassPlan(const Network& network, const NetworkWeights& weights, Backend& backend, const PassRequest& request)
    : network_(network), mode_(request.mode) {
  prepare_layers(weights, backend, request);
  std::vector<ActivationUse> uses;
  for (const auto& layer : layers_) {
    uses.push_back({.output_bytes = layer->output().bytes,
                    .reads_input = layer->reads_input(),
                    .reads_output = layer->reads_output(),
                    .leaves_residual_gradient = layer->leaves_residual_gradient()});
  }
  activations_.emplace(network_, std::move(uses), mode_);
}

void PassPlan::prepare_layers(const NetworkWeights& weights, Backend& backend, const PassRequest& request) {
  const ActivationSpec image = backend.plain_activation(network_.sample().batch_of(request.samples));
  const auto output_of = [&](int layer) {
    return layer == kImage ? image : layers_[static_cast<std::size_t>(layer)]->output();
  };
  for (const NetworkLayer& layer : network_.layers()) {
    layers_.push_back(backend.make_layer(
        layer.spec, {.input = output_of(layer.from),
                     .residual = takes_residual(layer.spec) ? output_of(layer.residual_from) : ActivationSpec{},
                     .weights = weights.of(layers_.size()),
                     .mode = mode_,
                     .wants_input_gradient = layer.from != kImage,
                     .random_purpose = random_purpose(layer.name)}));
  }
  loss_ =
      backend.make_softmax_loss(layers_.back()->output(), mode_ == LayerMode::training ? request.label_smoothing : 0.0);
}

}  // namespace tutti
