// Batch norm. Each pass has two kernels: one sums each chunk of rows, and its last block computes per-channel values
// from these sums; one goes over the values.

#include "backend/cuda/layers.hpp"
#include "backend/cuda/runtime.hpp"
#include "backend/cuda/weights.hpp"
#include "backend/requests.hpp"
#include "norm_kernels.cuh"

namespace tutti::cuda {
namespace {

__device__ inline int channel_of_thread() { return static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x); }

// For evaluation. Padded channels have no running statistics.
__global__ void norm_from_running(NormStatistics work, const float* mean, const float* variance, int padded_channels) {
  const int c = channel_of_thread();
  if (c >= padded_channels) return;
  const bool real = c < work.channels;
  set_statistics(work, c, real ? mean[c] : 0, real ? variance[c] : 0);
}

// From the sums over the whole batch.
__global__ void norm_from_totals(NormStatistics work, int padded_channels) {
  const int c = channel_of_thread();
  if (c >= padded_channels) return;
  const double n = work.totals[2 * work.channels];
  const bool real = c < work.channels;
  set_statistics_from_sums(work, c, n, real ? work.totals[2 * c] : 0, real ? work.totals[2 * c + 1] : 0);
  if (c == 0) *work.result.count = n;
}

__global__ void norm_propagation_from_totals(NormGradients work) {
  const int c = channel_of_thread();
  if (c >= work.channels) return;
  set_propagation(work, c, work.totals[2 * work.channels], {work.totals[2 * c], work.totals[2 * c + 1]});
}

auto norm_sums_of(ElementType type) { return type == ElementType::bf16 ? norm_sums<Bf16> : norm_sums<float>; }

template <class T>
auto norm_gradient_sums_of(const GradientSum& gradients) {
  if (gradients.second == nullptr) return norm_gradient_sums<T, 1>;
  return gradients.third == nullptr ? norm_gradient_sums<T, 2> : norm_gradient_sums<T, 3>;
}

auto norm_gradient_sums_of(ElementType type, const GradientSum& gradients) {
  return type == ElementType::bf16 ? norm_gradient_sums_of<Bf16>(gradients) : norm_gradient_sums_of<float>(gradients);
}

const float* values_of(const CudaWeights& weights, std::size_t index) {
  return static_cast<const float*>(weights.canonical()[index].data);
}

class BatchNormLayer final : public CudaLayer {
 public:
  BatchNormLayer(const Processor& processor, const BatchNormSpec& spec, const LayerRequest& request)
      : CudaLayer(request, request.input, with_mask(backward_reads(spec))),
        spec_(spec),
        frozen_(request.frozen),
        layout_(layout_of(request.input)),
        weights_(cuda_weights(spec, request)),
        sums_grid_(sums_grid(norm_sums_of(type_), processor.device)),
        gradient_sums_grid_(sums_grid(norm_gradient_sums_of(type_, {}), processor.device)),
        elementwise_grid_(share_rows(layout_, type_, {.blocks = elementwise_blocks(processor.device)})) {
    const auto channels = static_cast<std::size_t>(layout_.padded_channels);
    channel_memory_ =
        allocate_cuda(processor.device, channels * (4 * sizeof(double) + 5 * sizeof(float)) + 2 * sizeof(double));
    channels_.mean = static_cast<double*>(channel_memory_.data());
    channels_.variance = channels_.mean + channels;
    channels_.count = channels_.variance + channels;
    totals_ = channels_.count + 1;
    channels_.rounded_mean = reinterpret_cast<float*>(totals_ + 2 * channels + 1);
    channels_.factor = channels_.rounded_mean + channels;
    channels_.offset = channels_.factor + channels;
    channels_.slope = channels_.offset + channels;
    channels_.gradient_offset = channels_.slope + channels;
    if (mode_ == LayerMode::evaluation) return;
    const auto chunks = static_cast<std::size_t>(std::max(sums_grid_.chunks, gradient_sums_grid_.chunks));
    partials_ = allocate_cuda(processor.device, chunks * channels * sizeof(float2));
    blocks_done_ = allocate_cuda(processor.device, static_cast<std::size_t>(sums_grid_.columns) * sizeof(unsigned));
    if (spec.relu) positive_ = allocate_cuda(processor.device, output_.bytes / kPackBytes);
  }

  bool residual_gradient_in_place() const override { return spec_.add; }

  void forward(Stream& stream, const LayerForward& pass) override {
    const cudaStream_t cuda = native(as_cuda_stream(stream));
    NormStatistics statistics{.channels = layout_.channels,
                              .scale = values_of(weights_, 0),
                              .shift = values_of(weights_, 1),
                              .epsilon = spec_.epsilon,
                              .result = channels_};
    const int channels = static_cast<int>(layout_.padded_channels);
    if (mode_ == LayerMode::training && !frozen_) {
      if (pass.whole_batch != nullptr) statistics.totals = totals_;
      launch(norm_sums_of(type_), grid_of(sums_grid_), cuda, NormSums{sums_grid_, pass.input, partials(), statistics});
      if (pass.whole_batch != nullptr) {
        pass.whole_batch->sum(stream, totals());
        launch(norm_from_totals, grid_over_channels(), cuda, statistics, channels);
      }
    } else {
      launch(norm_from_running, grid_over_channels(), cuda, statistics, values_of(weights_, 2), values_of(weights_, 3),
             channels);
    }
    launch(is_bf16() ? norm_application<Bf16> : norm_application<float>, grid_of(elementwise_grid_), cuda,
           NormApplication{.grid = elementwise_grid_,
                           .input = pass.input,
                           .residual = spec_.add ? pass.residual : nullptr,
                           .output = pass.output,
                           .relu = spec_.relu,
                           .positive = positive(),
                           .channels = channels_});
  }

  void backward(Stream& stream, const LayerBackward& pass) override {
    require_training(pass);
    CudaStream& ours = as_cuda_stream(stream);
    const cudaStream_t cuda = native(ours);
    const GradientSum gradients = reduce_to_three(ours, pass, output_);
    // The sum is written where it is wanted as the residual's gradient, and where reading it costs less than summing
    // again.
    const bool is_sum = gradients.second != nullptr;
    const bool wanted = (spec_.add && pass.residual_gradient != nullptr) || (is_sum && pass.input_gradient != nullptr);
    void* const summed = wanted && (is_sum || spec_.relu) ? pass.output_gradients[0] : nullptr;
    launch(norm_gradient_sums_of(type_, gradients), grid_of(gradient_sums_grid_), cuda,
           NormGradientSums{.grid = gradient_sums_grid_,
                            .gradients = gradients,
                            .input = pass.input,
                            .positive = positive(),
                            .summed = summed,
                            .partials = partials(),
                            .channels = gradients_of_channels(pass)});
    if (pass.whole_batch != nullptr && !frozen_) {
      pass.whole_batch->sum(stream, totals());
      launch(norm_propagation_from_totals, grid_over_channels(), cuda, gradients_of_channels(pass));
    }
    if (pass.input_gradient == nullptr) return;
    launch(is_bf16() ? norm_propagation<Bf16> : norm_propagation<float>, grid_of(elementwise_grid_), cuda,
           NormPropagation{.grid = elementwise_grid_,
                           .gradient = gradients.first,
                           .positive = summed == nullptr ? positive() : nullptr,
                           .input = pass.input,
                           .input_gradient = pass.input_gradient,
                           .channels = channels_});
  }

 private:
  template <class Kernel>
  RowGrid sums_grid(Kernel kernel, int device) const {
    return share_rows_for_sums(layout_, type_,
                               {.blocks = sum_blocks(kernel, device, NormBlocks::kThreads),
                                .width = RowGrid::kWidestOfSums,
                                .threads = NormBlocks::kThreads,
                                .rows = 1});
  }
  PartialSums<float2> partials() const {
    return {static_cast<float2*>(partials_.data()), static_cast<unsigned*>(blocks_done_.data())};
  }
  Tensor totals() const { return {totals_, Shape{2 * layout_.channels + 1}, ElementType::f64, MemorySpace::cuda}; }
  Grid grid_over_channels() const {
    return {.blocks = static_cast<int>((layout_.padded_channels + RowGrid::kThreads - 1) / RowGrid::kThreads)};
  }
  std::uint8_t* positive() const { return static_cast<std::uint8_t*>(positive_.data()); }

  NormGradients gradients_of_channels(const LayerBackward& pass) const {
    const auto gradient = [&](std::size_t index) { return static_cast<float*>(pass.gradients[index].data); };
    return {.channels = layout_.channels,
            .scale = values_of(weights_, 0),
            .epsilon = spec_.epsilon,
            .sample_fraction = pass.sample_fraction,
            .frozen = frozen_,
            .of = channels_,
            .scale_gradient = gradient(0),
            .shift_gradient = gradient(1),
            .mean = gradient(2),
            .variance = gradient(3),
            .totals = pass.whole_batch == nullptr || frozen_ ? nullptr : totals_};
  }

  BatchNormSpec spec_;
  bool frozen_;
  ImageLayout layout_;
  const CudaWeights& weights_;
  RowGrid sums_grid_;
  RowGrid gradient_sums_grid_;
  RowGrid elementwise_grid_;
  Buffer channel_memory_;
  NormChannels channels_;  // within that memory
  double* totals_;         // too; as NormStatistics::totals
  Buffer partials_;
  Buffer blocks_done_;
  Buffer positive_;  // of the last output; empty without ReLU
};

}  // namespace

std::unique_ptr<Layer> make(const Processor& processor, const BatchNormSpec& spec, const LayerRequest& request) {
  if (spec.add) require_residual(spec, request);
  return std::make_unique<BatchNormLayer>(processor, spec, request);
}

}  // namespace tutti::cuda
