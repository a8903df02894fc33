#include "tutti/nn/part_context.hpp"

#include "tutti/base/error.hpp"

#include <fmt/format.h>

#include <algorithm>

namespace tutti {
namespace {

constexpr std::size_t kAlignment = 64;

std::size_t aligned(std::size_t bytes) { return (bytes + kAlignment - 1) / kAlignment * kAlignment; }

}  // namespace

NetworkWeights::NetworkWeights(const Network& network, Backend& backend, const Tensor& block) {
  for (const NetworkLayer& layer : network.layers()) {
    std::vector<Tensor> values;
    for (const int slice : layer.parameters) values.push_back(slice_of(block, network.layout().slice(slice)));
    layers_.push_back(values.empty() ? nullptr : backend.make_weights(layer.spec, values));
  }
}

void NetworkWeights::refresh(Stream& stream) {
  for (const auto& layer : layers_) {
    if (layer) layer->refresh(stream);
  }
}

// The layers prepared for one batch size and mode, and where their outputs lie in the activation memory.
struct PartContext::Plan {
  std::int64_t samples = 0;
  LayerMode mode = LayerMode::training;
  std::vector<std::unique_ptr<Layer>> layers;
  std::vector<std::size_t> offsets;
  std::size_t activation_bytes = 0;
  std::size_t gradient_bytes = 0;  // of the largest activation
  std::unique_ptr<LossLayer> loss;
};

PartContext::PartContext(const Network& network, NetworkWeights& weights, Backend& backend, double)
    : network_(network), weights_(weights), backend_(backend) {}

PartContext::~PartContext() = default;

void PartContext::plan(std::int64_t samples, LayerMode mode) {
  auto& slot = plans_[{samples, mode}];
  if (slot) return;
  auto plan = std::make_unique<Plan>();
  plan->samples = samples;
  plan->mode = mode;
  LayerRequest request{.input = backend_.plain_activation(network_.sample().batch_of(samples)),
                       .mode = mode,
                       .wants_input_gradient = false};
  std::size_t largest = 0;
  for (std::size_t i = 0; i < network_.layers().size(); ++i) {
    request.weights = weights_.of(i);
    plan->layers.push_back(backend_.make_layer(network_.layers()[i].spec, request));
    request.input = plan->layers.back()->output();
    request.wants_input_gradient = true;
    plan->offsets.push_back(plan->activation_bytes);
    plan->activation_bytes += aligned(request.input.bytes);
    largest = std::max(largest, aligned(request.input.bytes));
  }
  plan->loss = backend_.make_softmax_loss(request.input);
  if (mode == LayerMode::training) {
    plan->gradient_bytes = largest;
  } else {
    // Nothing is read twice in evaluation: two regions, by turns, hold it all.
    for (std::size_t i = 0; i < plan->offsets.size(); ++i) plan->offsets[i] = i % 2 * largest;
    plan->activation_bytes = 2 * largest;
  }
  if (activations_.bytes() < plan->activation_bytes) activations_ = backend_.allocate(plan->activation_bytes);
  for (Buffer& gradient : gradients_) {
    if (gradient.bytes() < plan->gradient_bytes) gradient = backend_.allocate(plan->gradient_bytes);
  }
  slot = std::move(plan);
}

std::size_t PartContext::activation_bytes() const {
  return activations_.bytes() + gradients_[0].bytes() + gradients_[1].bytes();
}

PartContext::Plan& PartContext::plan_for(std::int64_t samples, LayerMode mode) {
  const auto found = plans_.find({samples, mode});
  if (found == plans_.end()) {
    throw Error(ErrorSource::internal, fmt::format("no plan was made for a batch of {} samples", samples));
  }
  return *found->second;
}

void* PartContext::activation(const Plan& plan, std::size_t layer) const {
  return static_cast<std::byte*>(activations_.data()) + plan.offsets[layer];
}

void PartContext::forward(Stream& stream, const Tensor& images, LayerMode mode, const SamplePlace&) {
  current_ = &plan_for(images.shape[0], mode);
  images_ = images.data;
  const void* input = images_;
  for (std::size_t i = 0; i < current_->layers.size(); ++i) {
    void* output = activation(*current_, i);
    current_->layers[i]->forward(stream, {.input = input, .output = output});
    input = output;
  }
}

void PartContext::loss(Stream& stream, const Tensor& labels, float gradient_scale, const Tensor& sums) {
  const std::size_t last = current_->layers.size() - 1;
  current_->loss->run(stream,
                      {.logits = activation(*current_, last),
                       .labels = static_cast<const std::int32_t*>(labels.data),
                       .gradient_scale = gradient_scale,
                       .sums = sums,
                       .logits_gradient = current_->mode == LayerMode::training ? gradients_[0].data() : nullptr});
}

void PartContext::backward(Stream& stream, const Tensor& block, float, const AfterLayer& after_layer) {
  std::int64_t final_elements = 0;
  std::size_t turn = 0;
  std::vector<Tensor> gradients;
  for (std::size_t i = current_->layers.size(); i-- > 0;) {
    const NetworkLayer& layer = network_.layers()[i];
    gradients.clear();
    for (const int number : layer.parameters) {
      gradients.push_back(slice_of(block, network_.layout().slice(number)));
    }
    void* output_gradient = gradients_[turn].data();
    current_->layers[i]->backward(stream, {.input = i == 0 ? images_ : activation(*current_, i - 1),
                                           .output = activation(*current_, i),
                                           .output_gradients = {&output_gradient, 1},
                                           .input_gradient = i == 0 ? nullptr : gradients_[1 - turn].data(),
                                           .gradients = gradients});
    turn = 1 - turn;
    if (!layer.parameters.empty()) {
      const auto next = static_cast<std::size_t>(layer.parameters.back()) + 1;
      const auto& slices = network_.layout().slices();
      final_elements = next < slices.size() ? slices[next].offset : network_.layout().block_elements();
    }
    after_layer(final_elements);
  }
}

}  // namespace tutti
