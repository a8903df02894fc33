// Batch norm. Each pass has two kernels: one sums each chunk of rows, and its last block computes per-channel values
// from these sums; one goes over the values.

#include "backend/cuda/layers.hpp"
#include "backend/cuda/runtime.hpp"
#include "backend/cuda/weights.hpp"
#include "backend/requests.hpp"
#include "batch_norm.cuh"

namespace tutti::cuda {
namespace {

struct NormApplication {
  RowGrid grid;
  const void* input = nullptr;
  const void* residual = nullptr;  // or null
  void* output = nullptr;
  bool relu = false;
  std::uint8_t* positive = nullptr;  // a byte for each pack, or null
  NormChannels channels;
};

struct NormGradients {
  std::int64_t channels = 0;
  const float* scale = nullptr;
  double epsilon = 0;
  double sample_fraction = 1;
  bool frozen = false;  // the statistics do not depend on the batch
  NormChannels of;      // slope and gradient offset are written
  float* scale_gradient = nullptr;
  float* shift_gradient = nullptr;
  float* mean = nullptr;      // times the share, as is
  float* variance = nullptr;  // the unbiased one
  double* totals = nullptr;   // null, or receives the sums, as NormStatistics::totals
};

// The partial sums of gradients are those of the gradients and of gradient * (x - rounded mean).
struct NormGradientSums {
  RowGrid grid;
  GradientSum gradients;
  const void* input = nullptr;
  const std::uint8_t* positive = nullptr;  // or null: everywhere
  void* summed = nullptr;                  // gets the sum of the gradients where positive; or null
  PartialSums<float2> partials;
  NormGradients channels;
};

struct NormPropagation {
  RowGrid grid;
  const void* gradient = nullptr;
  const std::uint8_t* positive = nullptr;  // or null: everywhere
  const void* input = nullptr;
  void* input_gradient = nullptr;
  NormChannels channels;
};

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

template <class T>
__global__ void __launch_bounds__(RowGrid::kThreads, 4) norm_application(NormApplication work) {
  constexpr int kSize = Floats<T>::kSize;
  const RowShare share = share_of_thread(work.grid, static_cast<int>(blockIdx.y));
  if (share.begin >= share.end) return;
  const auto mean = load_channels<T>(work.channels.rounded_mean, share.pack);
  const auto factor = load_channels<T>(work.channels.factor, share.pack);
  const auto offset = load_channels<T>(work.channels.offset, share.pack);
  for_each_pack<2>(share, [&](auto count, std::int64_t first) {
    constexpr int kCount = decltype(count)::value;
    Pack<T> x[kCount];
    Pack<T> residual[kCount] = {};
#pragma unroll
    for (int n = 0; n < kCount; ++n) {
      const std::int64_t i = first + n * share.step;
      x[n] = load_pack<T>(work.input, i);
      if (work.residual != nullptr) residual[n] = load_pack<T>(work.residual, i);
    }
#pragma unroll
    for (int n = 0; n < kCount; ++n) {
      const std::int64_t i = first + n * share.step;
      Floats<T> y = floats_of(x[n]);
#pragma unroll
      for (int k = 0; k < kSize; ++k) {
        y.values[k] = (y.values[k] - mean.values[k]) * factor.values[k] + offset.values[k];
      }
      if (work.residual != nullptr) add(y, floats_of(residual[n]));
      if (work.positive != nullptr) work.positive[i] = static_cast<std::uint8_t>(positive_bits(y));
      if (work.relu) rectify(y);
      store(work.output, i, y);
    }
  });
}

// dx = factor * (dy - mean of dy - (x - mean) / (variance + epsilon) * mean of dy * (x - mean)), or, with running
// statistics, factor * dy. Returns the gradient of the channel's scale.
__device__ inline double set_propagation(const NormGradients& work, int c, double n, const double (&sums)[2]) {
  const double inverse = 1 / sqrt(work.of.variance[c] + work.epsilon);
  const double factor = work.scale[c] * inverse;
  const double rounding = work.of.mean[c] - work.of.rounded_mean[c];
  const double product = sums[1] - rounding * sums[0];
  const double slope = factor * inverse * inverse * product / n;
  work.of.slope[c] = work.frozen ? 0.0f : static_cast<float>(slope);
  work.of.gradient_offset[c] = work.frozen ? 0.0f : static_cast<float>(factor * sums[0] / n - slope * rounding);
  return product * inverse;
}

__global__ void norm_propagation_from_totals(NormGradients work) {
  const int c = channel_of_thread();
  if (c >= work.channels) return;
  set_propagation(work, c, work.totals[2 * work.channels], {work.totals[2 * c], work.totals[2 * c + 1]});
}

__device__ inline void set_gradients(const NormGradients& work, int c, double rows, const double (&sums)[2]) {
  if (c >= work.channels) return;
  if (work.totals != nullptr) set_totals(work.totals, work.channels, c, rows, sums);
  work.scale_gradient[c] = static_cast<float>(set_propagation(work, c, rows, sums));
  work.shift_gradient[c] = static_cast<float>(sums[0]);
  work.mean[c] = static_cast<float>(work.of.mean[c] * work.sample_fraction);
  const double n = work.totals != nullptr ? *work.of.count : rows;
  const double unbiased = n > 1 ? n / (n - 1) : 1;
  work.variance[c] = static_cast<float>(work.of.variance[c] * unbiased * work.sample_fraction);
}

template <class T, int kGradients>
__global__ void __launch_bounds__(RowGrid::kThreads, 3) norm_gradient_sums(NormGradientSums work) {
  constexpr int kSize = Floats<T>::kSize;
  constexpr int kUnroll = kGradients == 3 ? 1 : 2;
  const RowShare share = share_of_thread(work.grid, reversed_chunk());
  Floats<T> mean{};
  if (share.begin < share.end) mean = load_channels<T>(work.channels.of.rounded_mean, share.pack);
  Floats<T> sums{};
  Floats<T> products{};
  for_each_pack<kUnroll>(share, [&](auto count, std::int64_t first) {
    constexpr int kCount = decltype(count)::value;
    Pack<T> x[kCount];
    GradientPacks<T, kGradients> gradients[kCount];
    unsigned bits[kCount] = {};
#pragma unroll
    for (int n = 0; n < kCount; ++n) {
      const std::int64_t i = first + n * share.step;
      x[n] = load_pack<T>(work.input, i);
      gradients[n] = load_packs<T, kGradients>(work.gradients, i);
      if (work.positive != nullptr) bits[n] = work.positive[i];
    }
#pragma unroll
    for (int n = 0; n < kCount; ++n) {
      Floats<T> gradient = sum_of(gradients[n]);
      if (work.positive != nullptr) keep_bits(gradient, bits[n]);
      if (work.summed != nullptr) store(work.summed, first + n * share.step, gradient);
      add(sums, gradient);
      const Floats<T> input = floats_of(x[n]);
#pragma unroll
      for (int k = 0; k < kSize; ++k) {
        products.values[k] += gradient.values[k] * (input.values[k] - mean.values[k]);
      }
    }
  });
  double both[2 * kSize];
#pragma unroll
  for (int k = 0; k < kSize; ++k) {
    both[2 * k] = sums.values[k];
    both[2 * k + 1] = products.values[k];
  }
  add_rows({work.grid.width, work.grid.height}, both);
  float2 of_chunk[kSize];
#pragma unroll
  for (int k = 0; k < kSize; ++k) of_chunk[k] = {static_cast<float>(both[2 * k]), static_cast<float>(both[2 * k + 1])};
  const auto add_chunk = [](double(&all)[2], float2 part, int) {
    all[0] += part.x;
    all[1] += part.y;
  };
  const auto finish = [&](int channel, const double(&all)[2]) {
    set_gradients(work.channels, channel, static_cast<double>(work.grid.rows), all);
  };
  finish_sums<2>(work.grid, work.partials, share, of_chunk, add_chunk, finish);
}

template <class T>
__global__ void __launch_bounds__(RowGrid::kThreads, 3) norm_propagation(NormPropagation work) {
  constexpr int kSize = Floats<T>::kSize;
  const RowShare share = share_of_thread(work.grid, static_cast<int>(blockIdx.y));
  if (share.begin >= share.end) return;
  const auto mean = load_channels<T>(work.channels.rounded_mean, share.pack);
  const auto factor = load_channels<T>(work.channels.factor, share.pack);
  const auto slope = load_channels<T>(work.channels.slope, share.pack);
  const auto offset = load_channels<T>(work.channels.gradient_offset, share.pack);
  for_each_pack<2>(share, [&](auto count, std::int64_t first) {
    constexpr int kCount = decltype(count)::value;
    Pack<T> x[kCount];
    Pack<T> gradients[kCount];
    unsigned bits[kCount] = {};
#pragma unroll
    for (int n = 0; n < kCount; ++n) {
      const std::int64_t i = first + n * share.step;
      x[n] = load_pack<T>(work.input, i);
      gradients[n] = load_pack<T>(work.gradient, i);
      if (work.positive != nullptr) bits[n] = work.positive[i];
    }
#pragma unroll
    for (int n = 0; n < kCount; ++n) {
      const Floats<T> input = floats_of(x[n]);
      Floats<T> gradient = floats_of(gradients[n]);
      if (work.positive != nullptr) keep_bits(gradient, bits[n]);
#pragma unroll
      for (int k = 0; k < kSize; ++k) {
        gradient.values[k] = gradient.values[k] * factor.values[k] -
                             (input.values[k] - mean.values[k]) * slope.values[k] - offset.values[k];
      }
      store(work.input_gradient, first + n * share.step, gradient);
    }
  });
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
        sums_grid_(
            share_rows(layout_, type_, sum_blocks(norm_sums_of(type_), processor.device), RowGrid::kWidestOfSums)),
        gradient_sums_grid_(share_rows(layout_, type_, sum_blocks(norm_gradient_sums_of(type_, {}), processor.device),
                                       RowGrid::kWidestOfSums)),
        elementwise_grid_(share_rows(layout_, type_, elementwise_blocks(processor.device))) {
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
