#include "pass_plan.hpp"

#include "tutti/base/random.hpp"

#include <algorithm>
#include <functional>
#include <limits>
#include <numeric>
#include <utility>

namespace tutti {
namespace {

std::size_t aligned(std::size_t bytes) {
  return (bytes + MemoryPlan::kAlignment - 1) / MemoryPlan::kAlignment * MemoryPlan::kAlignment;
}

bool overlap(const BlockLifetime& a, const BlockLifetime& b) { return a.begin <= b.end && b.begin <= a.end; }

struct Placed {
  std::size_t begin;
  std::size_t end;
};

// The start of the narrowest gap between `neighbors` that holds `bytes`, or the end of them all.
std::size_t best_fit(std::vector<Placed>& neighbors, std::size_t bytes) {
  std::ranges::sort(neighbors, {}, &Placed::begin);
  std::size_t best = 0;
  std::size_t narrowest = std::numeric_limits<std::size_t>::max();
  std::size_t free_from = 0;
  for (const Placed& placed : neighbors) {
    if (placed.begin >= free_from + bytes && placed.begin - free_from < narrowest) {
      narrowest = placed.begin - free_from;
      best = free_from;
    }
    free_from = std::max(free_from, placed.end);
  }
  return narrowest == std::numeric_limits<std::size_t>::max() ? free_from : best;
}

// Blocks in the order in which they are to be placed: those with the greatest measure first.
template <class Measure>
std::vector<std::size_t> ordered(std::span<const BlockLifetime> blocks, Measure measure) {
  std::vector<std::size_t> order(blocks.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::ranges::stable_sort(order, std::greater<>{}, [&](std::size_t block) { return measure(blocks[block]); });
  return order;
}

}  // namespace

// Two ways to begin: with what is hard to place for its size, which suits evaluation, or with what lives longest, which
// stacks up the activations of training. The better one counts.
MemoryPlan::MemoryPlan(std::span<const BlockLifetime> blocks) {
  place(blocks, ordered(blocks, [](const BlockLifetime& block) { return block.bytes; }));
  MemoryPlan other;
  other.place(blocks, ordered(blocks, [](const BlockLifetime& block) { return block.end - block.begin; }));
  if (other.bytes_ < bytes_) *this = std::move(other);
}

void MemoryPlan::place(std::span<const BlockLifetime> blocks, std::span<const std::size_t> order) {
  offsets_.resize(blocks.size());
  std::vector<Placed> neighbors;
  for (std::size_t done = 0; done < order.size(); ++done) {
    const std::size_t block = order[done];
    neighbors.clear();
    for (const std::size_t other : order.first(done)) {
      if (!overlap(blocks[block], blocks[other])) continue;
      neighbors.push_back({offsets_[other], offsets_[other] + aligned(blocks[other].bytes)});
    }
    const std::size_t bytes = aligned(blocks[block].bytes);
    offsets_[block] = best_fit(neighbors, bytes);
    bytes_ = std::max(bytes_, offsets_[block] + bytes);
  }
}

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
    const bool returns = trains && layer.has_backward;
    if (returns && uses_[i].reads_output) keep(blocks.output, backward_time(i));
    const auto read = [&](int from, int moment) {
      if (from != kImage) keep(layer_blocks_[static_cast<std::size_t>(from)].output, moment);
    };
    read(layer.from, returns && uses_[i].reads_input ? backward_time(i) : forward_time(i));
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
    if (takes_residual(layer.spec) && network.has_gradient(layer.residual_from)) {
      const auto from = static_cast<std::size_t>(layer.residual_from);
      const bool left = uses_[i].residual_gradient_in_place;
      blocks.residual_gradient = left ? blocks.output_gradients.front() : add_block(from, backward_time(i));
      layer_blocks_[from].output_gradients.push_back(*blocks.residual_gradient);
    }
    if (network.has_gradient(layer.from)) {
      const auto from = static_cast<std::size_t>(layer.from);
      blocks.input_gradient = add_block(from, backward_time(i));
      layer_blocks_[from].output_gradients.push_back(*blocks.input_gradient);
    }
  }
}

// Adds a block for the output of this layer, or for its gradient, that is first written at `begin`.
std::size_t ActivationPlan::add_block(std::size_t layer, int begin) {
  lifetimes_.push_back({.bytes = uses_[layer].output_bytes, .begin = begin, .end = begin});
  return lifetimes_.size() - 1;
}

void ActivationPlan::keep(std::size_t block, int moment) {
  lifetimes_[block].end = std::max(lifetimes_[block].end, moment);
}

PassPlan::PassPlan(const Network& network, const NetworkWeights& weights, Backend& backend, const PassRequest& request)
    : mode(request.mode) {
  const ActivationSpec image = backend.plain_activation(network.sample().batch_of(request.samples));
  const auto output_of = [&](int layer) {
    return layer == kImage ? image : layers[static_cast<std::size_t>(layer)]->output();
  };
  std::vector<ActivationUse> uses;
  for (const NetworkLayer& layer : network.layers()) {
    const auto& made = layers.emplace_back(backend.make_layer(
        layer.spec, {.input = output_of(layer.from),
                     .residual = takes_residual(layer.spec) ? output_of(layer.residual_from) : ActivationSpec{},
                     .weights = weights.of(layers.size()),
                     .mode = mode,
                     .wants_input_gradient = network.has_gradient(layer.from),
                     .frozen = layer.frozen,
                     .random_purpose = random_purpose(layer.name)}));
    uses.push_back({.output_bytes = made->output().bytes,
                    .reads_input = made->reads_input(),
                    .reads_output = made->reads_output(),
                    .residual_gradient_in_place = made->residual_gradient_in_place()});
  }
  loss = backend.make_softmax_loss(layers.back()->output(), mode == LayerMode::training ? request.loss : LossOptions{});
  activations.emplace(network, std::move(uses), mode);
}

// Assumes that a backend's layers read what backward_reads() says and leave residual gradients in place.
std::size_t estimate_activations(const Network& network, const PassSize& pass) {
  std::vector<ActivationUse> uses;
  for (const NetworkLayer& layer : network.layers()) {
    const LayerReads reads = backward_reads(layer.spec);
    uses.push_back(
        {.output_bytes = static_cast<std::size_t>(pass.samples * layer.output.elements()) * pass.bytes_per_value,
         .reads_input = reads.input,
         .reads_output = reads.output,
         .residual_gradient_in_place = true});
  }
  return ActivationPlan(network, std::move(uses), pass.mode).memory().bytes();
}

}  // namespace tutti
