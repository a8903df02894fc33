#include "backend/cuda/weighted_layer.hpp"

#include "tutti/base/error.hpp"

#include "backend/cuda/device_tensor.hpp"
#include "backend/cuda/native.hpp"

#include <fmt/format.h>

#include <algorithm>

namespace tutti::cuda {
namespace {

constexpr std::size_t kAlignment = 256;

std::size_t aligned(std::size_t bytes) { return (bytes + kAlignment - 1) / kAlignment * kAlignment; }

}  // namespace

WeightedLayer::WeightedLayer(const Processor& processor, const WeightedLayerParts& parts, const LayerRequest& request)
    : parts_(parts), type_(processor.type), layout_(layout_of(parts.output)) {
  CudaWeights& weights = cuda_weights(request.weights);
  filters_ = weights.packed(parts.filters);
  const bool has_bias = weights.canonical().size() > 1;
  bias_ = has_bias ? device_f32(weights.canonical()[1]) : nullptr;

  const auto plan = [&](ConvolutionPass pass) { return processor.planner.plan(pass, parts.convolution); };
  forward_ = plan(ConvolutionPass::forward);
  if (request.mode == LayerMode::evaluation) return;
  weight_gradient_ = plan(ConvolutionPass::weight_gradient);
  if (request.wants_input_gradient) input_gradient_ = plan(ConvolutionPass::input_gradient);

  partials_ = has_bias ? partial_sums(layout_, type_) : 0;
  gradient_offset_ = aligned(weight_gradient_->scratch_bytes());
  const auto gradient_values = static_cast<std::size_t>(parts.filters.packed_values());
  partials_offset_ = gradient_offset_ + aligned(gradient_values * bytes_of(type_));
  const auto partial_values = static_cast<std::size_t>(partials_ * layout_.padded_channels);
  backward_scratch_ = partials_offset_ + partial_values * sizeof(float);
  if (input_gradient_) backward_scratch_ = std::max(backward_scratch_, input_gradient_->scratch_bytes());
}

void WeightedLayer::forward(Stream& stream, const LayerForward& pass) {
  CudaStream& cuda = as_cuda_stream(stream);
  forward_->run(cuda, {const_cast<void*>(pass.input), filters_, pass.output}, cuda.scratch(forward_->scratch_bytes()));
  if (bias_ == nullptr && !parts_.relu) return;
  launch_bias_relu(native(cuda), {type_, layout_, pass.output, bias_, parts_.relu});
}

void WeightedLayer::require(const LayerBackward& pass) const {
  if (!weight_gradient_) throw Error(ErrorSource::internal, "a plan made for evaluation is asked for gradients");
  if (pass.output_gradients.empty()) throw Error(ErrorSource::internal, "a layer is given no gradient of its output");
  const std::size_t expected = bias_ == nullptr ? 1 : 2;
  if (pass.gradients.size() == expected) return;
  throw Error(ErrorSource::internal, fmt::format("a layer with {} parameters is given {} tensors for their gradients",
                                                 expected, pass.gradients.size()));
}

// All gradients are added to the first; the kernel that adds the last one does the rest, too.
void WeightedLayer::form_output_gradient(CudaStream& stream, const LayerBackward& pass, float* partials) const {
  OutputGradient request{type_, layout_, pass.output_gradients[0]};
  const std::size_t last = pass.output_gradients.size() - 1;
  for (std::size_t i = 1; i < last; ++i) {
    request.added = pass.output_gradients[i];
    launch_output_gradient(native(stream), request);
  }
  request.added = last > 0 ? pass.output_gradients[last] : nullptr;
  request.output = parts_.relu ? pass.output : nullptr;
  request.partials = partials;
  if (request.added == nullptr && request.output == nullptr && request.partials == nullptr) return;
  launch_output_gradient(native(stream), request);
}

void WeightedLayer::backward(Stream& stream, const LayerBackward& pass) {
  require(pass);
  CudaStream& cuda = as_cuda_stream(stream);
  auto* const scratch = static_cast<std::byte*>(cuda.scratch(backward_scratch_));
  void* const packed_gradient = scratch + gradient_offset_;
  auto* const partials = bias_ == nullptr ? nullptr : reinterpret_cast<float*>(scratch + partials_offset_);
  form_output_gradient(cuda, pass, partials);

  void* const output_gradient = pass.output_gradients[0];
  weight_gradient_->run(cuda, {const_cast<void*>(pass.input), packed_gradient, output_gradient}, scratch);
  launch_unpack(native(cuda), {.layout = parts_.filters,
                               .type = type_,
                               .packed = packed_gradient,
                               .canonical = device_f32(pass.gradients[0]),
                               .partials = partials_,
                               .bias_partials = partials,
                               .bias = bias_ == nullptr ? nullptr : device_f32(pass.gradients[1])});
  if (input_gradient_) input_gradient_->run(cuda, {pass.input_gradient, filters_, output_gradient}, scratch);
}

}  // namespace tutti::cuda
