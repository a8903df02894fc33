#include "tutti/base/error.hpp"

#include "backend/cuda/plan_search.hpp"
#include "backend/cuda/runtime.hpp"
#include "backend/cuda/weights.hpp"
#include "floats.cuh"
#include "grids.cuh"

#include <string>

namespace tutti::cuda {
namespace {

// values += bias, then max(0, values) when relu. In place.
struct BiasRelu {
  RowGrid grid;
  void* values = nullptr;
  std::int64_t channels = 0;
  const float* bias = nullptr;  // of each channel; null without
  bool relu = false;
};

// The sum of the gradients where the output is positive, and the bias's gradient: the sum of that over all rows.
struct OutputGradient {
  RowGrid grid;
  GradientSum gradients;
  const void* output = nullptr;  // null: everywhere
  void* result = nullptr;        // null where it is the first of the gradients as it is
  float* bias = nullptr;         // null without
  std::int64_t channels = 0;
  PartialSums<float> partials;
};

// The canonical bias ends with the last channel.
template <class T>
__device__ inline Floats<T> bias_of_pack(const BiasRelu& work, int pack) {
  Floats<T> bias{};
  if (work.bias == nullptr) return bias;
#pragma unroll
  for (int k = 0; k < Floats<T>::kSize; ++k) {
    const int channel = pack * Floats<T>::kSize + k;
    if (channel < work.channels) bias.values[k] = work.bias[channel];
  }
  return bias;
}

template <class T>
__global__ void __launch_bounds__(RowGrid::kThreads, 4) bias_relu(BiasRelu work) {
  const RowShare share = share_of_thread(work.grid, static_cast<int>(blockIdx.y));
  if (share.begin >= share.end) return;
  const Floats<T> bias = bias_of_pack<T>(work, share.pack);
  for_each_pack<2>(share, [&](auto count, std::int64_t first) {
    constexpr int kCount = decltype(count)::value;
    Floats<T> y[kCount];
#pragma unroll
    for (int n = 0; n < kCount; ++n) y[n] = load<T>(work.values, first + n * share.step);
#pragma unroll
    for (int n = 0; n < kCount; ++n) {
      add(y[n], bias);
      if (work.relu) rectify(y[n]);
      store(work.values, first + n * share.step, y[n]);
    }
  });
}

template <class T>
__global__ void __launch_bounds__(RowGrid::kThreads, 4) output_gradient(OutputGradient work) {
  constexpr int kSize = Floats<T>::kSize;
  const RowShare share = share_of_thread(work.grid, static_cast<int>(blockIdx.y));
  Floats<T> sums{};
  for_each_pack<2>(share, [&](auto count, std::int64_t first) {
    constexpr int kCount = decltype(count)::value;
    Floats<T> gradient[kCount] = {};
    unsigned bits[kCount] = {};
#pragma unroll
    for (int n = 0; n < kCount; ++n) {
      gradient[n] = load<T>(work.gradients, first + n * share.step);
      if (work.output != nullptr) bits[n] = positive_bits(load<T>(work.output, first + n * share.step));
    }
#pragma unroll
    for (int n = 0; n < kCount; ++n) {
      if (work.output != nullptr) keep_bits(gradient[n], bits[n]);
      if (work.result != nullptr) store(work.result, first + n * share.step, gradient[n]);
      add(sums, gradient[n]);
    }
  });
  if (work.bias == nullptr) return;
  double values[kSize];
#pragma unroll
  for (int k = 0; k < kSize; ++k) values[k] = sums.values[k];
  add_rows({work.grid.width, work.grid.height}, values);
  float of_chunk[kSize];
#pragma unroll
  for (int k = 0; k < kSize; ++k) of_chunk[k] = static_cast<float>(values[k]);
  finish_sums(work.grid, work.partials, share, of_chunk, [&](int channel, double sum) {
    if (channel < work.channels) work.bias[channel] = static_cast<float>(sum);
  });
}

class WeightedLayer final : public CudaLayer {
 public:
  WeightedLayer(const Processor& processor, const WeightedLayerDesc& layer, CudaWeights& weights,
                const LayerRequest& request);

  void forward(Stream& stream, const LayerForward& pass) override;
  void backward(Stream& stream, const LayerBackward& pass) override;

 private:
  // The kernel that sums.
  auto gradient() const { return is_bf16() ? output_gradient<Bf16> : output_gradient<float>; }
  void form_output_gradient(CudaStream& stream, const LayerBackward& pass) const;

  WeightedLayerDesc layer_;
  ImageLayout layout_;  // of the output
  RowGrid grid_;        // over it
  void* filters_;       // Borrowed
  const float* bias_;   // Borrowed; null without
  std::shared_ptr<ConvolutionPlan> forward_;
  std::shared_ptr<ConvolutionPlan> weight_gradient_;  // null in evaluation
  std::shared_ptr<ConvolutionPlan> input_gradient_;   // null when none is wanted
  Buffer packed_gradient_;                            // of the filters
  Buffer partials_;                                   // of the bias's gradient
  Buffer blocks_done_;
};

WeightedLayer::WeightedLayer(const Processor& processor, const WeightedLayerDesc& layer, CudaWeights& weights,
                             const LayerRequest& request)
    : CudaLayer(request, layer.output, layer.reads),
      layer_(layer),
      layout_(layout_of(layer.output)),
      grid_(share_rows(layout_, type_,
                       {.blocks = mode_ == LayerMode::training ? sum_blocks(gradient(), processor.device)
                                                               : elementwise_blocks(processor.device),
                        .width = RowGrid::kWidestOfSums})),
      filters_(weights.packed(layer.filters)) {
  const bool has_bias = weights.canonical().size() > 1;
  bias_ = has_bias ? device_f32(weights.canonical()[1]) : nullptr;

  const auto plan = [&](ConvolutionPass pass) { return processor.planner.plan(pass, layer.convolution); };
  forward_ = plan(ConvolutionPass::forward);
  if (request.mode == LayerMode::evaluation) return;
  weight_gradient_ = plan(ConvolutionPass::weight_gradient);
  if (request.wants_input_gradient) input_gradient_ = plan(ConvolutionPass::input_gradient);

  packed_gradient_ =
      allocate_cuda(processor.device, static_cast<std::size_t>(layer.filters.packed_values()) * bytes_of(type_));
  if (!has_bias) return;
  partials_ =
      allocate_cuda(processor.device, static_cast<std::size_t>(grid_.chunks * layout_.padded_channels) * sizeof(float));
  blocks_done_ = allocate_cuda(processor.device, static_cast<std::size_t>(grid_.columns) * sizeof(unsigned));
}

void WeightedLayer::forward(Stream& stream, const LayerForward& pass) {
  CudaStream& cuda = as_cuda_stream(stream);
  forward_->run(cuda, {const_cast<void*>(pass.input), filters_, pass.output}, cuda.scratch(forward_->scratch_bytes()));
  if (bias_ == nullptr && !layer_.relu) return;
  launch(is_bf16() ? bias_relu<Bf16> : bias_relu<float>, grid_of(grid_), native(cuda),
         BiasRelu{grid_, pass.output, layout_.channels, bias_, layer_.relu});
}

void WeightedLayer::form_output_gradient(CudaStream& stream, const LayerBackward& pass) const {
  const GradientSum gradients = reduce_to_three(stream, pass, layer_.output);
  const bool differs = gradients.second != nullptr || layer_.relu;
  if (!differs && bias_ == nullptr) return;
  launch(
      gradient(), grid_of(grid_), native(stream),
      OutputGradient{.grid = grid_,
                     .gradients = gradients,
                     .output = layer_.relu ? pass.output : nullptr,
                     .result = differs ? pass.output_gradients[0] : nullptr,
                     .bias = bias_ == nullptr ? nullptr : device_f32(pass.gradients[1]),
                     .channels = layout_.channels,
                     .partials = {static_cast<float*>(partials_.data()), static_cast<unsigned*>(blocks_done_.data())}});
}

void WeightedLayer::backward(Stream& stream, const LayerBackward& pass) {
  require_training(pass);
  CudaStream& cuda = as_cuda_stream(stream);
  form_output_gradient(cuda, pass);
  void* const output_gradient = pass.output_gradients[0];
  const auto run = [&](ConvolutionPlan& plan, const ConvolutionTensors& tensors) {
    plan.run(cuda, tensors, cuda.scratch(plan.scratch_bytes()));
  };
  run(*weight_gradient_, {const_cast<void*>(pass.input), packed_gradient_.data(), output_gradient});
  const PackedFilters filters{layer_.filters, type_, device_f32(pass.gradients[0]), packed_gradient_.data()};
  if (pass.unfinished != nullptr) {
    dynamic_cast<PackedGradients&>(*pass.unfinished).add(filters);
  } else {
    launch_unpack(native(cuda), {&filters, 1});
  }
  if (pass.input_gradient != nullptr) run(*input_gradient_, {pass.input_gradient, filters_, output_gradient});
}

// In a depthwise convolution, each channel that pads the images is a group of its own.
void divide_into_groups(WeightedLayerDesc& layer, std::int64_t groups) {
  FilterLayout& filters = layer.filters;
  const bool is_padded = filters.channels != filters.padded_channels || filters.outputs != filters.padded_outputs;
  const bool is_depthwise = filters.channels == groups && filters.outputs == groups;
  if (is_padded && !is_depthwise) {
    throw Error(ErrorSource::input, "conv2d: " + std::to_string(groups) + " groups of " +
                                        std::to_string(filters.channels) + " channels to " +
                                        std::to_string(filters.outputs) +
                                        ": on GPUs, both numbers of channels must be multiples of 8, or both equal to "
                                        "the groups");
  }
  layer.convolution.groups = is_depthwise ? filters.padded_channels : groups;
  filters.channels /= groups;
  filters.padded_channels = filters.channels;
}

std::unique_ptr<Layer> make_weighted(const Processor& processor, const LayerSpec& spec, const LayerRequest& request) {
  const WeightedLayerDesc layer = weighted_layer_of(processor.precision, spec, request.input);
  return std::make_unique<WeightedLayer>(processor, layer, cuda_weights(spec, request), request);
}

}  // namespace

WeightedLayerDesc weighted_layer_of(Precision precision, const LayerSpec& spec, const ActivationSpec& input) {
  const ImageLayout images = layout_of(input);
  const ActivationSpec output = output_of(spec, input);
  const ImageLayout results = layout_of(output);
  WeightedLayerDesc layer{.convolution = {.samples = images.samples,
                                          .channels = images.padded_channels,
                                          .height = images.height,
                                          .width = images.width,
                                          .outputs = results.padded_channels,
                                          .precision = precision},
                          .filters = {.outputs = results.channels,
                                      .channels = images.channels,
                                      .padded_outputs = results.padded_channels,
                                      .padded_channels = images.padded_channels},
                          .output = output,
                          .reads = backward_reads(spec)};
  if (const auto* convolution = std::get_if<Conv2dSpec>(&spec)) {
    layer.convolution.kernel_height = convolution->kernel;
    layer.convolution.kernel_width = convolution->kernel;
    layer.convolution.stride = convolution->stride;
    layer.convolution.padding = convolution->padding;
    layer.convolution.dilation = convolution->dilation;
    if (convolution->groups > 1) divide_into_groups(layer, convolution->groups);
    layer.filters.positions = convolution->kernel * convolution->kernel;
    layer.relu = convolution->relu;
  } else {
    // The image as it lies in memory, with its padding, is the channels of one pixel: the weights are packed like
    // filters that cover the whole image.
    layer.convolution.channels = images.pixels() * images.padded_channels;
    layer.convolution.height = 1;
    layer.convolution.width = 1;
    layer.filters.positions = images.pixels();
    layer.relu = std::get<LinearSpec>(spec).relu;
  }
  return layer;
}

std::unique_ptr<Layer> make(const Processor& processor, const Conv2dSpec& spec, const LayerRequest& request) {
  return make_weighted(processor, spec, request);
}

std::unique_ptr<Layer> make(const Processor& processor, const LinearSpec& spec, const LayerRequest& request) {
  return make_weighted(processor, spec, request);
}

}  // namespace tutti::cuda
