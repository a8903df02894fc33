#include "tutti/nn/part_context.hpp"

#include "tutti/base/error.hpp"

#include "pass_plan.hpp"

#include <fmt/format.h>

namespace tutti {

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

PartContext::PartContext(const Network& network, NetworkWeights& weights, Backend& backend, double label_smoothing)
    : network_(network), weights_(weights), backend_(backend), label_smoothing_(label_smoothing) {}

PartContext::~PartContext() = default;

void PartContext::plan(std::int64_t samples, LayerMode mode) {
  if (plans_.contains({samples, mode})) return;
  const PassRequest request{.samples = samples, .mode = mode, .label_smoothing = label_smoothing_};
  auto plan = std::make_unique<PassPlan>(network_, weights_, backend_, request);
  if (arena_.bytes() < plan->memory().bytes()) arena_ = backend_.allocate(plan->memory().bytes());
  plans_.emplace(std::pair(samples, mode), std::move(plan));
}

std::size_t PartContext::activation_bytes() const { return arena_.bytes(); }

const PassPlan& PartContext::plan_for(std::int64_t samples, LayerMode mode) const {
  const auto found = plans_.find({samples, mode});
  if (found == plans_.end()) {
    throw Error(ErrorSource::internal, fmt::format("no plan was made for a batch of {} samples", samples));
  }
  return *found->second;
}

void* PartContext::address(std::size_t block) const {
  return static_cast<std::byte*>(arena_.data()) + current_->memory().offset(block);
}

const void* PartContext::values_of(int layer) const {
  return layer == kImage ? images_ : address(current_->blocks(static_cast<std::size_t>(layer)).output);
}

void PartContext::forward(Stream& stream, const Tensor& images, LayerMode mode, const SamplePlace& place) {
  current_ = &plan_for(images.shape[0], mode);
  images_ = images.data;
  for (std::size_t i = 0; i < network_.layers().size(); ++i) {
    const NetworkLayer& layer = network_.layers()[i];
    current_->layer(i).set_place(stream, place);
    current_->layer(i).forward(stream,
                               {.input = values_of(layer.from),
                                .residual = takes_residual(layer.spec) ? values_of(layer.residual_from) : nullptr,
                                .output = address(current_->blocks(i).output)});
  }
}

void PartContext::loss(Stream& stream, const Tensor& labels, float gradient_scale, const Tensor& sums) {
  const LayerBlocks& last = current_->blocks(network_.layers().size() - 1);
  const bool trains = current_->mode() == LayerMode::training;
  current_->loss().run(stream, {.logits = address(last.output),
                                .labels = static_cast<const std::int32_t*>(labels.data),
                                .gradient_scale = gradient_scale,
                                .sums = sums,
                                .logits_gradient = trains ? address(last.output_gradients.front()) : nullptr});
}

void PartContext::backward(Stream& stream, const Tensor& block, float sample_share, const AfterLayer& after_layer) {
  const ParameterLayout& layout = network_.layout();
  const auto& slices = layout.slices();
  std::int64_t final_elements = 0;
  for (std::size_t i = network_.layers().size(); i-- > 0;) {
    run_backward(stream, i, block, sample_share);
    for (const int number : network_.layers()[i].parameters) {
      const auto next = static_cast<std::size_t>(number) + 1;
      if (next <= layout.trained().size()) {
        final_elements = next < slices.size() ? slices[next].offset : layout.block_elements();
      }
    }
    after_layer(i == 0 ? layout.block_elements() : final_elements);
  }
}

void PartContext::run_backward(Stream& stream, std::size_t layer, const Tensor& block, float sample_share) {
  const NetworkLayer& node = network_.layers()[layer];
  const LayerBlocks& blocks = current_->blocks(layer);
  std::vector<Tensor> gradients;
  for (const int number : node.parameters) gradients.push_back(slice_of(block, network_.layout().slice(number)));
  std::vector<void*> output_gradients;
  for (const std::size_t gradient : blocks.output_gradients) output_gradients.push_back(address(gradient));
  const Layer& prepared = current_->layer(layer);
  current_->layer(layer).backward(
      stream, {.input = prepared.reads_input() ? values_of(node.from) : nullptr,
               .output = prepared.reads_output() ? address(blocks.output) : nullptr,
               .output_gradients = output_gradients,
               .input_gradient = blocks.input_gradient ? address(*blocks.input_gradient) : nullptr,
               .residual_gradient = blocks.residual_gradient ? address(*blocks.residual_gradient) : nullptr,
               .gradients = gradients,
               .sample_share = sample_share});
}

}  // namespace tutti
