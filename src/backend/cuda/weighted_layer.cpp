#include "backend/cuda/weighted_layer.hpp"

#include "backend/cuda/device_tensor.hpp"
#include "backend/cuda/native.hpp"
#include "backend/requirements.hpp"

#include <algorithm>

namespace tutti::cuda {
namespace {

constexpr std::size_t kAlignment = 256;
// As many as a large GPU runs at once, since in training each leaves partial sums.
constexpr std::int64_t kSumBlocks = 4 * 132;

std::size_t aligned(std::size_t bytes) { return (bytes + kAlignment - 1) / kAlignment * kAlignment; }

}  // namespace

WeightedLayer::WeightedLayer(const Processor& processor, const WeightedLayerParts& parts, const LayerRequest& request)
    : parts_(parts),
      type_(processor.type),
      mode_(request.mode),
      layout_(layout_of(parts.output)),
      grid_(share_rows(layout_, type_, mode_ == LayerMode::training ? kSumBlocks : kPassBlocks)) {
  CudaWeights& weights = cuda_weights(request.weights);
  filters_ = weights.packed(parts.filters);
  const bool has_bias = weights.canonical().size() > 1;
  bias_ = has_bias ? device_f32(weights.canonical()[1]) : nullptr;

  const auto plan = [&](ConvolutionPass pass) { return processor.planner.plan(pass, parts.convolution); };
  forward_ = plan(ConvolutionPass::forward);
  if (request.mode == LayerMode::evaluation) return;
  weight_gradient_ = plan(ConvolutionPass::weight_gradient);
  if (request.wants_input_gradient) input_gradient_ = plan(ConvolutionPass::input_gradient);

  gradient_offset_ = aligned(weight_gradient_->scratch_bytes());
  const auto gradient_values = static_cast<std::size_t>(parts.filters.packed_values());
  partials_offset_ = gradient_offset_ + aligned(gradient_values * bytes_of(type_));
  const auto partial_values = static_cast<std::size_t>(has_bias ? grid_.chunks * layout_.padded_channels : 0);
  backward_scratch_ = partials_offset_ + partial_values * sizeof(float);
  if (input_gradient_) backward_scratch_ = std::max(backward_scratch_, input_gradient_->scratch_bytes());
}

void WeightedLayer::forward(Stream& stream, const LayerForward& pass) {
  CudaStream& cuda = as_cuda_stream(stream);
  forward_->run(cuda, {const_cast<void*>(pass.input), filters_, pass.output}, cuda.scratch(forward_->scratch_bytes()));
  if (bias_ == nullptr && !parts_.relu) return;
  launch_bias_relu(native(cuda), type_, {grid_, pass.output, layout_.channels, bias_, parts_.relu});
}

void WeightedLayer::form_output_gradient(CudaStream& stream, const LayerBackward& pass, float* partials) const {
  const GradientSum gradients = gradients_of(stream, pass, parts_.output);
  const bool differs = gradients.second != nullptr || parts_.relu;
  if (!differs && partials == nullptr) return;
  launch_output_gradient(native(stream), type_,
                         {.grid = grid_,
                          .gradients = gradients,
                          .output = parts_.relu ? pass.output : nullptr,
                          .result = differs ? pass.output_gradients[0] : nullptr,
                          .partials = partials});
}

void WeightedLayer::backward(Stream& stream, const LayerBackward& pass) {
  require_training(mode_, pass);
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
                               .partials = grid_.chunks,
                               .bias_partials = partials,
                               .bias = bias_ == nullptr ? nullptr : device_f32(pass.gradients[1])});
  if (input_gradient_) input_gradient_->run(cuda, {pass.input_gradient, filters_, output_gradient}, scratch);
}

}  // namespace tutti::cuda
