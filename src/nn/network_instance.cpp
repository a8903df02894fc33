#include "tutti/nn/network_instance.hpp"

#include "tutti/base/digest.hpp"
#include "tutti/base/error.hpp"

#include "pass_plan.hpp"

#include <fmt/format.h>

#include <algorithm>

namespace tutti {
namespace {

// Enough for the parts of a rank at two sizes each; further passes are computed without graphs.
constexpr std::size_t kMostGraphs = 32;

// Returns for each layer how many elements of the block are ready after its backward pass. The statistics become ready
// with the first layer, whose backward pass is the last.
std::vector<std::int64_t> final_elements_of(const Network& network) {
  const ParameterLayout& layout = network.layout();
  const auto ends = layout.slice_ends();
  std::vector<std::int64_t> ready_elements(network.layers().size());
  std::int64_t now = 0;
  for (std::size_t i = ready_elements.size(); i-- > 0;) {
    for (const int number : network.layers()[i].parameters) {
      const auto slice = static_cast<std::size_t>(number);
      if (slice < layout.trained().size()) now = ends[slice];
    }
    ready_elements[i] = i == 0 ? layout.block_elements() : now;
  }
  return ready_elements;
}

}  // namespace

NetworkWeights::NetworkWeights(const Network& network, Backend& backend, const Tensor& block) : backend_(backend) {
  for (const NetworkLayer& layer : network.layers()) {
    std::vector<Tensor> values;
    for (const int slice : layer.parameters) values.push_back(slice_of(block, network.layout().slice(slice)));
    layers_.push_back(values.empty() ? nullptr : backend.make_weights(layer.spec, values));
  }
}

std::vector<LayerWeights*> NetworkWeights::all() const {
  std::vector<LayerWeights*> with_weights;
  for (const auto& layer : layers_) {
    if (layer) with_weights.push_back(layer.get());
  }
  return with_weights;
}

void NetworkWeights::refresh(Stream& stream) { backend_.refresh(stream, all()); }

// What a graph depends on: passes with equal keys are the same work.
struct PassKey {
  const PassPlan* plan = nullptr;
  const void* images = nullptr;
  const void* labels = nullptr;
  const void* sums = nullptr;
  const void* gradients = nullptr;
  float sample_fraction = 0;
  std::size_t first_layer = 0;
  bool may_leave_unfinished = false;
  std::vector<std::int64_t> bucket_ends{};
  friend bool operator==(const PassKey&, const PassKey&) = default;
};

struct NetworkInstance::PassGraphs {
  struct Piece {
    std::unique_ptr<Graph> graph;
    std::int64_t ready_elements = 0;                  // once it is done
    std::unique_ptr<UnfinishedGradients> unfinished;  // that it leaves; or null
  };
  PassKey key;
  std::int64_t passes = 0;
  std::vector<Piece> pieces{};
};

NetworkInstance::NetworkInstance(const Network& network, NetworkWeights& weights, Backend& backend,
                                 const LossOptions& loss)
    : network_(network),
      weights_(weights),
      backend_(backend),
      loss_(loss),
      gradient_scale_memory_(backend.allocate(sizeof(float))),
      ready_elements_(final_elements_of(network)) {}

NetworkInstance::~NetworkInstance() = default;

void NetworkInstance::plan(std::int64_t samples, LayerMode mode) {
  if (plans_.contains({samples, mode})) return;
  const PassRequest request{.samples = samples, .mode = mode, .loss = loss_};
  auto plan = std::make_unique<PassPlan>(network_, weights_, backend_, request);
  const std::size_t bytes = plan->activations->memory().bytes();
  if (activations_.bytes() < bytes) {
    graphs_.clear();
    unfinished_ = nullptr;
    activations_ = Buffer();
    activations_ = backend_.allocate(bytes);
  }
  plans_.emplace(std::pair(samples, mode), std::move(plan));
}

std::size_t NetworkInstance::activation_bytes() const { return activations_.bytes(); }

const PassPlan& NetworkInstance::plan_for(std::int64_t samples, LayerMode mode) const {
  const auto found = plans_.find({samples, mode});
  if (found == plans_.end()) {
    throw Error(ErrorSource::internal, fmt::format("no plan was made for a batch of {} samples", samples));
  }
  return *found->second;
}

void* NetworkInstance::address(std::size_t block) const {
  return static_cast<std::byte*>(activations_.data()) + current_->activations->memory().offset(block);
}

const void* NetworkInstance::values_of(int layer) const {
  return layer == kImage ? images_ : address(current_->activations->blocks(static_cast<std::size_t>(layer)).output);
}

void NetworkInstance::train(Stream& stream, const TrainPass& pass, const PassCallbacks& callbacks) {
  current_ = &plan_for(pass.images.shape[0], LayerMode::training);
  set_batch_position(stream, pass.place);
  set_gradient_scale(stream, pass.gradient_scale);
  unfinished_ = nullptr;
  const PassGraphs* const graphs = whole_batch_ == nullptr ? graphs_of(stream, pass, callbacks.bucket_ends) : nullptr;
  if (graphs != nullptr) {
    callbacks.before_backward();
    for (const auto& [graph, ready_elements, unfinished] : graphs->pieces) {
      graph->launch(stream);
      unfinished_ = unfinished.get();
      callbacks.after_layer(ready_elements);
    }
    return;
  }
  run_forward(stream, pass.images);
  loss(stream, pass.labels, pass.gradient_scale, pass.sums);
  callbacks.before_backward();
  run_backward(stream, {pass.gradients, pass.sample_fraction, pass.first_layer}, callbacks.after_layer);
}

// The first pass is computed without capture, so that one-time work is done before the second is captured.
const NetworkInstance::PassGraphs* NetworkInstance::graphs_of(Stream& stream, const TrainPass& pass,
                                                              std::span<const std::int64_t> bucket_ends) {
  const PassKey key{.plan = current_,
                    .images = pass.images.data,
                    .labels = pass.labels.data,
                    .sums = pass.sums.data,
                    .gradients = pass.gradients.data,
                    .sample_fraction = pass.sample_fraction,
                    .first_layer = pass.first_layer,
                    .may_leave_unfinished = pass.may_leave_unfinished,
                    .bucket_ends = {bucket_ends.begin(), bucket_ends.end()}};
  auto graphs = std::ranges::find_if(graphs_, [&](const auto& known) { return known->key == key; });
  if (graphs == graphs_.end()) {
    std::erase_if(graphs_, [&](const auto& known) { return known->key.first_layer != key.first_layer; });
    if (graphs_.size() == kMostGraphs) return nullptr;
    graphs = graphs_.insert(graphs_.end(), std::make_unique<PassGraphs>(PassGraphs{.key = key}));
  }
  if (++(*graphs)->passes == 2) capture(stream, pass, **graphs);
  return (*graphs)->pieces.empty() ? nullptr : graphs->get();
}

void NetworkInstance::capture(Stream& stream, const TrainPass& pass, PassGraphs& graphs) {
  std::span<const std::int64_t> bucket_ends = graphs.key.bucket_ends;
  const std::size_t layers = network_.layers().size();
  for (std::size_t begin = layers; begin > 0;) {
    std::size_t end = begin - 1;  // the last layer of this piece
    while (end > 0 && (bucket_ends.empty() || ready_elements_[end] < bucket_ends.front())) --end;
    while (!bucket_ends.empty() && bucket_ends.front() <= ready_elements_[end]) bucket_ends = bucket_ends.subspan(1);
    auto unfinished = backend_.make_unfinished_gradients();
    // With buckets, what comes after a piece wants its gradients.
    const bool is_left = pass.may_leave_unfinished && graphs.key.bucket_ends.empty();
    auto graph = backend_.capture(stream, [&] {
      if (begin == layers) {
        run_forward(stream, pass.images);
        loss(stream, pass.labels, pass.gradient_scale, pass.sums);
      }
      for (std::size_t i = begin; i-- > end;) {
        run_backward(stream, i, {pass.gradients, pass.sample_fraction, pass.first_layer, unfinished.get()});
      }
      if (unfinished && !is_left) unfinished->finish(stream);
    });
    if (!graph) return graphs.pieces.clear();
    if (!is_left) unfinished.reset();
    graphs.pieces.push_back({std::move(graph), ready_elements_[end], std::move(unfinished)});
    begin = end;
  }
}

void NetworkInstance::set_batch_position(Stream& stream, const BatchPosition& place) const {
  for (std::size_t i = 0; i < network_.layers().size(); ++i) current_->layers[i]->set_batch_position(stream, place);
}

// The copy is not part of a graph, since train() has already made it.
void NetworkInstance::set_gradient_scale(Stream& stream, float scale) {
  if (scale == gradient_scale_) return;
  gradient_scale_ = scale;
  backend_.copy(stream, gradient_scale_memory_.view(Shape{1}, ElementType::f32),
                {&*gradient_scale_, Shape{1}, ElementType::f32, MemorySpace::host});
}

void NetworkInstance::forward(Stream& stream, const Tensor& images, LayerMode mode, const BatchPosition& place) {
  current_ = &plan_for(images.shape[0], mode);
  set_batch_position(stream, place);
  run_forward(stream, images);
}

void NetworkInstance::run_forward(Stream& stream, const Tensor& images) {
  images_ = images.data;
  for (std::size_t i = 0; i < network_.layers().size(); ++i) run_layer(stream, i);
}

void NetworkInstance::run_layer(Stream& stream, std::size_t layer) {
  const NetworkLayer& node = network_.layers()[layer];
  current_->layers[layer]->forward(stream,
                                   {.input = values_of(node.from),
                                    .residual = takes_residual(node.spec) ? values_of(node.residual_from) : nullptr,
                                    .output = address(current_->activations->blocks(layer).output),
                                    .whole_batch = whole_batch_});
  layer_done_();
}

void NetworkInstance::copy_logits(Stream& stream, const Tensor& to) const {
  const std::size_t last = network_.layers().size() - 1;
  backend_.to_plain(stream, current_->layers[last]->output(), address(current_->activations->blocks(last).output), to);
}

void NetworkInstance::loss(Stream& stream, const Labels& labels, float gradient_scale, const Tensor& sums) {
  const LayerBlocks& last = current_->activations->blocks(network_.layers().size() - 1);
  const bool trains = current_->mode == LayerMode::training;
  if (trains) set_gradient_scale(stream, gradient_scale);
  current_->loss->run(stream, {.logits = address(last.output),
                               .labels = labels,
                               .gradient_scale = static_cast<const float*>(gradient_scale_memory_.data()),
                               .sums = sums,
                               .logits_gradient = trains ? address(last.output_gradients.front()) : nullptr});
}

// Blocks are reused, so that each must be digested before the next layer is computed.
std::vector<std::uint64_t> NetworkInstance::trace(Stream& stream, const TrainPass& pass) {
  current_ = &plan_for(pass.images.shape[0], LayerMode::training);
  set_batch_position(stream, pass.place);
  images_ = pass.images.data;
  const std::size_t layers = network_.layers().size();
  std::vector<std::uint64_t> digests;
  for (std::size_t i = 0; i < layers; ++i) {
    run_layer(stream, i);
    digests.push_back(digest_of_activation(stream, i, current_->activations->blocks(i).output));
  }
  loss(stream, pass.labels, pass.gradient_scale, pass.sums);
  const LayerBlocks& last = current_->activations->blocks(layers - 1);
  digests.push_back(digest_of_activation(stream, layers - 1, last.output_gradients.front()));
  const GradientTarget target{pass.gradients, pass.sample_fraction, pass.first_layer};
  for (std::size_t i = layers; i-- > 0;) {
    run_backward(stream, i, target);
    digests.push_back(digest_of_gradients(stream, i, target));
  }
  return digests;
}

TracedValue NetworkInstance::traced_value(const Network& network, std::size_t index) {
  const auto& layers = network.layers();
  if (index < layers.size()) return {layers[index].name};
  if (index == layers.size()) return {"loss"};
  return {layers.at(2 * layers.size() - index).name, true};
}

std::uint64_t NetworkInstance::digest_of_activation(Stream& stream, std::size_t layer, std::size_t block) {
  const ActivationSpec& activation = current_->layers[layer]->output();
  const std::int64_t elements = activation.shape.elements();
  const Buffer memory = backend_.allocate(static_cast<std::size_t>(elements) * sizeof(float));
  const DigestedTensor plain{memory.view(Shape{elements}, ElementType::f32)};
  backend_.to_plain(stream, activation, address(block), plain.values);
  return digest_of(backend_, stream, {&plain, 1});
}

std::uint64_t NetworkInstance::digest_of_gradients(Stream& stream, std::size_t layer, const GradientTarget& target) {
  const NetworkLayer& node = network_.layers()[layer];
  if (!node.has_backward || !target.includes(static_cast<int>(layer))) return 0;
  const LayerBlocks& blocks = current_->activations->blocks(layer);
  std::vector<ParameterSlice> slices;
  for (const int number : node.parameters) slices.push_back(network_.layout().slice(number));
  std::uint64_t digest = slices.empty() ? 0 : digest_of(backend_, stream, target.block, slices);
  if (blocks.input_gradient && target.includes(node.from)) {
    digest += digest_of_activation(stream, static_cast<std::size_t>(node.from), *blocks.input_gradient);
  }
  // Mixed, as the same values may also be the input's gradient.
  if (blocks.residual_gradient && target.includes(node.residual_from)) {
    digest +=
        mix64(digest_of_activation(stream, static_cast<std::size_t>(node.residual_from), *blocks.residual_gradient));
  }
  return digest;
}

void NetworkInstance::backward(Stream& stream, const Tensor& block, float sample_fraction,
                               const AfterLayer& after_layer) {
  run_backward(stream, {block, sample_fraction}, after_layer);
}

void NetworkInstance::run_backward(Stream& stream, const GradientTarget& target, const AfterLayer& after_layer) {
  for (std::size_t i = network_.layers().size(); i-- > 0;) {
    run_backward(stream, i, target);
    after_layer(ready_elements_[i]);
  }
}

void NetworkInstance::run_backward(Stream& stream, std::size_t layer, const GradientTarget& target) {
  const NetworkLayer& node = network_.layers()[layer];
  if (!node.has_backward) return;
  std::vector<Tensor> gradients;
  for (const int number : node.parameters) gradients.push_back(slice_of(target.block, network_.layout().slice(number)));
  if (!target.includes(static_cast<int>(layer))) {
    for (const Tensor& gradient : gradients) backend_.fill_zero(stream, gradient);
    return;
  }
  const LayerBlocks& blocks = current_->activations->blocks(layer);
  const auto wanted = [&](const std::optional<std::size_t>& gradient, int of) {
    return gradient && target.includes(of) ? address(*gradient) : nullptr;
  };
  std::vector<void*> output_gradients;
  for (const std::size_t gradient : blocks.output_gradients) output_gradients.push_back(address(gradient));
  Layer& prepared = *current_->layers[layer];
  prepared.backward(stream, {.input = prepared.reads_input() ? values_of(node.from) : nullptr,
                             .output = prepared.reads_output() ? address(blocks.output) : nullptr,
                             .output_gradients = output_gradients,
                             .input_gradient = wanted(blocks.input_gradient, node.from),
                             .residual_gradient = wanted(blocks.residual_gradient, node.residual_from),
                             .gradients = gradients,
                             .sample_fraction = target.sample_fraction,
                             .unfinished = target.unfinished,
                             .whole_batch = whole_batch_});
  layer_done_();
}

}  // namespace tutti
