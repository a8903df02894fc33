#include "pass_plan.hpp"

#include "tutti/base/random.hpp"

#include <algorithm>

namespace tutti {

PassPlan::PassPlan(const Network& network, const NetworkWeights& weights, Backend& backend, const PassRequest& request)
    : network_(network), mode_(request.mode), layer_blocks_(network.layers().size()) {
  prepare_layers(weights, backend, request);
  place_activations();
  if (mode_ == LayerMode::training) place_gradients();
  memory_ = MemoryPlan(lifetimes_);
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

void PassPlan::place_activations() {
  const bool trains = mode_ == LayerMode::training;
  for (std::size_t i = 0; i < layers_.size(); ++i) {
    const NetworkLayer& layer = network_.layers()[i];
    LayerBlocks& blocks = layer_blocks_[i];
    blocks.output = add_block(i, forward_moment(i));
    if (trains && layers_[i]->reads_output()) keep(blocks.output, backward_moment(i));
    const auto read = [&](int from, int moment) {
      if (from != kImage) keep(layer_blocks_[static_cast<std::size_t>(from)].output, moment);
    };
    read(layer.from, trains && layers_[i]->reads_input() ? backward_moment(i) : forward_moment(i));
    if (takes_residual(layer.spec)) read(layer.residual_from, forward_moment(i));
  }
  keep(layer_blocks_.back().output, loss_moment());
}

// Each reader of an activation writes a gradient of its own. A residual's gradient that is left in the reader's first
// output gradient stays there, perhaps over several layers, until the layer that made the residual has read it.
void PassPlan::place_gradients() {
  layer_blocks_.back().output_gradients = {add_block(layers_.size() - 1, loss_moment())};
  for (std::size_t i = layers_.size(); i-- > 0;) {
    const NetworkLayer& layer = network_.layers()[i];
    LayerBlocks& blocks = layer_blocks_[i];
    for (const std::size_t block : blocks.output_gradients) keep(block, backward_moment(i));
    if (takes_residual(layer.spec) && layer.residual_from != kImage) {
      const auto from = static_cast<std::size_t>(layer.residual_from);
      const bool left = layers_[i]->leaves_residual_gradient();
      blocks.residual_gradient = left ? blocks.output_gradients.front() : add_block(from, backward_moment(i));
      layer_blocks_[from].output_gradients.push_back(*blocks.residual_gradient);
    }
    if (layer.from != kImage) {
      const auto from = static_cast<std::size_t>(layer.from);
      blocks.input_gradient = add_block(from, backward_moment(i));
      layer_blocks_[from].output_gradients.push_back(*blocks.input_gradient);
    }
  }
}

// For the output of this layer, or its gradient, first written at `begin`.
std::size_t PassPlan::add_block(std::size_t layer, int begin) {
  lifetimes_.push_back({.bytes = layers_[layer]->output().bytes, .begin = begin, .end = begin});
  return lifetimes_.size() - 1;
}

void PassPlan::keep(std::size_t block, int moment) { lifetimes_[block].end = std::max(lifetimes_[block].end, moment); }

}  // namespace tutti
