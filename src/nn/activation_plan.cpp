#include "activation_plan.hpp"

#include <algorithm>
#include <utility>

namespace tutti {

ActivationPlan::ActivationPlan(const Network& network, std::vector<ActivationUse> uses, LayerMode mode)
    : uses_(std::move(uses)), layer_blocks_(uses_.size()) {
  place_activations(network, mode == LayerMode::training);
  if (mode == LayerMode::training) place_gradients(network);
  memory_ = MemoryPlan(lifetimes_);
}

void ActivationPlan::place_activations(const Network& network, bool trains) {
  for (std::size_t i = 0; i < uses_.size(); ++i) {
    const NetworkLayer& layer = network.layers()[i];
    LayerBlocks& blocks = layer_blocks_[i];
    blocks.output = add_block(i, forward_moment(i));
    if (trains && uses_[i].reads_output) keep(blocks.output, backward_moment(i));
    const auto read = [&](int from, int moment) {
      if (from != kImage) keep(layer_blocks_[static_cast<std::size_t>(from)].output, moment);
    };
    read(layer.from, trains && uses_[i].reads_input ? backward_moment(i) : forward_moment(i));
    if (takes_residual(layer.spec)) read(layer.residual_from, forward_moment(i));
  }
  keep(layer_blocks_.back().output, loss_moment());
}

// Each reader of an activation writes a gradient of its own. A residual's gradient that is left in the reader's first
// output gradient stays there, perhaps over several layers, until the layer that made the residual has read it.
void ActivationPlan::place_gradients(const Network& network) {
  layer_blocks_.back().output_gradients = {add_block(uses_.size() - 1, loss_moment())};
  for (std::size_t i = uses_.size(); i-- > 0;) {
    const NetworkLayer& layer = network.layers()[i];
    LayerBlocks& blocks = layer_blocks_[i];
    for (const std::size_t block : blocks.output_gradients) keep(block, backward_moment(i));
    if (takes_residual(layer.spec) && layer.residual_from != kImage) {
      const auto from = static_cast<std::size_t>(layer.residual_from);
      const bool left = uses_[i].leaves_residual_gradient;
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
std::size_t ActivationPlan::add_block(std::size_t layer, int begin) {
  lifetimes_.push_back({.bytes = uses_[layer].output_bytes, .begin = begin, .end = begin});
  return lifetimes_.size() - 1;
}

void ActivationPlan::keep(std::size_t block, int moment) {
  lifetimes_[block].end = std::max(lifetimes_[block].end, moment);
}

}  // namespace tutti
