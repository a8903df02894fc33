#include "pass_plan.hpp"

#include "tutti/base/random.hpp"
#include "tutti/nn/activation_estimate.hpp"

#include <algorithm>
#include <utility>

namespace tutti {
namespace {

// What a backend's layer is expected to say of itself.
ActivationUse expected_use(const NetworkLayer& layer, const PassSize& pass) {
  const LayerReads reads = backward_reads(layer.spec);
  return {.output_bytes = static_cast<std::size_t>(pass.samples * layer.output.elements()) * pass.bytes_per_value,
          .reads_input = reads.input,
          .reads_output = reads.output,
          .residual_gradient_in_place = true};
}

}  // namespace

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
    blocks.output = add_block(i, forward_time(i));
    if (trains && uses_[i].reads_output) keep(blocks.output, backward_time(i));
    const auto read = [&](int from, int moment) {
      if (from != kImage) keep(layer_blocks_[static_cast<std::size_t>(from)].output, moment);
    };
    read(layer.from, trains && uses_[i].reads_input ? backward_time(i) : forward_time(i));
    if (takes_residual(layer.spec)) read(layer.residual_from, forward_time(i));
  }
  keep(layer_blocks_.back().output, loss_time());
}

// Each reader of an activation writes a gradient of its own. A residual's gradient that is left in the reader's first
// output gradient stays there, perhaps over several layers, until the layer that made the residual has read it.
void ActivationPlan::place_gradients(const Network& network) {
  layer_blocks_.back().output_gradients = {add_block(uses_.size() - 1, loss_time())};
  for (std::size_t i = uses_.size(); i-- > 0;) {
    const NetworkLayer& layer = network.layers()[i];
    LayerBlocks& blocks = layer_blocks_[i];
    for (const std::size_t block : blocks.output_gradients) keep(block, backward_time(i));
    if (takes_residual(layer.spec) && layer.residual_from != kImage) {
      const auto from = static_cast<std::size_t>(layer.residual_from);
      const bool left = uses_[i].residual_gradient_in_place;
      blocks.residual_gradient = left ? blocks.output_gradients.front() : add_block(from, backward_time(i));
      layer_blocks_[from].output_gradients.push_back(*blocks.residual_gradient);
    }
    if (layer.from != kImage) {
      const auto from = static_cast<std::size_t>(layer.from);
      blocks.input_gradient = add_block(from, backward_time(i));
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

PassPlan::PassPlan(const Network& network, const NetworkWeights& weights, Backend& backend, const PassRequest& request)
    : network_(network), mode_(request.mode) {
  prepare_layers(weights, backend, request);
  std::vector<ActivationUse> uses;
  for (const auto& layer : layers_) {
    uses.push_back({.output_bytes = layer->output().bytes,
                    .reads_input = layer->reads_input(),
                    .reads_output = layer->reads_output(),
                    .residual_gradient_in_place = layer->residual_gradient_in_place()});
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

std::size_t estimate_activations(const Network& network, const PassSize& pass) {
  std::vector<ActivationUse> uses;
  for (const NetworkLayer& layer : network.layers()) uses.push_back(expected_use(layer, pass));
  return ActivationPlan(network, std::move(uses), pass.mode).memory().bytes();
}

}  // namespace tutti
