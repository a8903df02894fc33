#include "backend/cuda/batch_norm.hpp"
#include "floats.cuh"
#include "grids.cuh"

namespace tutti::cuda {
namespace {

// What reads values that were just written goes through them backwards, since the last of them are in the cache.
__device__ inline int last_chunk_first() { return static_cast<int>(gridDim.y - 1 - blockIdx.y); }

__device__ inline std::int64_t rows_of_chunk(const RowGrid& grid, std::int64_t chunk) {
  const std::int64_t left = grid.rows - chunk * grid.chunk_rows;
  return left < grid.chunk_rows ? left : grid.chunk_rows;
}

template <class T>
struct Moments {
  Pack<T> about;  // the thread's first value of each channel: little is lost where the mean is large
  Floats<T> sums;
  Floats<T> squares;
};

// Sums about zero, in f64: those about the mean would not add up.
template <class T>
__device__ inline void about_zero(const Moments<T>& moments, double rows, double (&values)[2 * Floats<T>::kSize]) {
#pragma unroll
  for (int k = 0; k < Floats<T>::kSize; ++k) {
    const double about = to_float(moments.about.values[k]);
    const double sum = moments.sums.values[k];
    values[2 * k] = sum + rows * about;
    values[2 * k + 1] = moments.squares.values[k] + about * (2 * sum + rows * about);
  }
}

template <class T>
__global__ void __launch_bounds__(RowGrid::kThreads, 3) norm_sums(NormSums work) {
  constexpr int kSize = Floats<T>::kSize;
  const int chunk = last_chunk_first();
  const RowShare share = share_of_thread(work.grid, chunk);
  Moments<T> moments{};
  if (share.begin < share.end) moments.about = load_pack<T>(work.input, share.begin);
  int rows = 0;
  for_each_pack<4>(share, [&](auto count, std::int64_t i) {
    constexpr int kCount = decltype(count)::value;
    Pack<T> packs[kCount];
#pragma unroll
    for (int n = 0; n < kCount; ++n) packs[n] = load_pack<T>(work.input, i + n * share.step);
#pragma unroll
    for (int n = 0; n < kCount; ++n) {
      const Floats<T> x = floats_of(packs[n]);
#pragma unroll
      for (int k = 0; k < kSize; ++k) {
        const float apart = x.values[k] - to_float(moments.about.values[k]);
        moments.sums.values[k] += apart;
        moments.squares.values[k] += apart * apart;
      }
    }
    rows += kCount;
  });
  double sums[2 * kSize];
  about_zero(moments, rows, sums);
  add_rows({work.grid.width, work.grid.height}, sums);
  if (share.row != 0 || share.begin >= share.end) return;
  const double inverse = 1 / static_cast<double>(rows_of_chunk(work.grid, chunk));
  float2* const to = work.partials + (static_cast<std::int64_t>(chunk) * work.grid.packs + share.pack) * kSize;
#pragma unroll
  for (int k = 0; k < kSize; ++k) {
    const double mean = sums[2 * k] * inverse;
    const double squares = sums[2 * k + 1] - sums[2 * k] * mean;
    to[k] = {static_cast<float>(mean), static_cast<float>(squares < 0 ? 0 : squares)};
  }
}

// The kernels that go on with partial sums: a few channels to a block.
constexpr int kChannels = 4;
constexpr int kHeight = RowGrid::kThreads / kChannels;

struct ChannelOfThread {
  int channel;
  int row;
};

__device__ inline ChannelOfThread channel_of_thread() {
  const int thread = static_cast<int>(threadIdx.x);
  return {static_cast<int>(blockIdx.x) * kChannels + thread % kChannels, thread / kChannels};
}

__global__ void norm_statistics(NormStatistics work, int padded_channels) {
  const ChannelOfThread at = channel_of_thread();
  double sums[2] = {0, 0};
  if (work.partials != nullptr) {
    for (int chunk = at.row; chunk < work.grid.chunks; chunk += kHeight) {
      const float2 part = work.partials[static_cast<std::int64_t>(chunk) * padded_channels + at.channel];
      const double mean = part.x;
      const double sum = mean * static_cast<double>(rows_of_chunk(work.grid, chunk));
      sums[0] += sum;
      sums[1] += part.y + sum * mean;
    }
    add_rows({kChannels, kHeight}, sums);
  }
  if (at.row != 0) return;
  const int c = at.channel;
  const bool real = c < work.channels;
  double mean = 0;
  double variance = 0;
  if (work.partials != nullptr) {
    const auto rows = static_cast<double>(work.grid.rows);
    mean = sums[0] / rows;
    variance = sums[1] / rows - mean * mean;
    variance = variance < 0 ? 0 : variance;
  } else if (real) {
    mean = work.running_mean[c];
    variance = work.running_variance[c];
  }
  const double factor = real ? work.scale[c] / sqrt(variance + work.epsilon) : 0;
  const auto rounded = static_cast<float>(mean);
  work.result.mean[c] = mean;
  work.result.variance[c] = variance;
  work.result.rounded_mean[c] = rounded;
  work.result.factor[c] = static_cast<float>(factor);
  work.result.offset[c] = real ? static_cast<float>(work.shift[c] + (rounded - mean) * factor) : 0.0f;
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

template <class T, int kGradients>
__global__ void __launch_bounds__(RowGrid::kThreads, 3) norm_gradient_sums(NormGradientSums work) {
  constexpr int kSize = Floats<T>::kSize;
  constexpr int kTogether = kGradients == 3 ? 1 : 2;
  const int chunk = last_chunk_first();
  const RowShare share = share_of_thread(work.grid, chunk);
  Floats<T> mean{};
  if (share.begin < share.end) mean = load_channels<T>(work.rounded_mean, share.pack);
  Floats<T> sums{};
  Floats<T> products{};
  for_each_pack<kTogether>(share, [&](auto count, std::int64_t first) {
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
  if (share.row != 0 || share.begin >= share.end) return;
  float2* const to = work.partials + (static_cast<std::int64_t>(chunk) * work.grid.packs + share.pack) * kSize;
#pragma unroll
  for (int k = 0; k < kSize; ++k) to[k] = {static_cast<float>(both[2 * k]), static_cast<float>(both[2 * k + 1])};
}

// dx = factor * (dy - mean of dy - (x - mean) / (variance + epsilon) * mean of dy * (x - mean)).
__global__ void norm_gradients(NormGradients work, int padded_channels) {
  const ChannelOfThread at = channel_of_thread();
  double sums[2] = {0, 0};
  for (int chunk = at.row; chunk < work.grid.chunks; chunk += kHeight) {
    const float2 part = work.partials[static_cast<std::int64_t>(chunk) * padded_channels + at.channel];
    sums[0] += part.x;
    sums[1] += part.y;
  }
  add_rows({kChannels, kHeight}, sums);
  const int c = at.channel;
  if (at.row != 0 || c >= work.channels) return;
  const auto n = static_cast<double>(work.grid.rows);
  const double inverse = 1 / sqrt(work.of.variance[c] + work.epsilon);
  const double factor = work.scale[c] * inverse;
  const double beside = work.of.mean[c] - work.of.rounded_mean[c];
  const double product = sums[1] - beside * sums[0];
  const double slope = factor * inverse * inverse * product / n;
  work.of.slope[c] = static_cast<float>(slope);
  work.of.gradient_offset[c] = static_cast<float>(factor * sums[0] / n - slope * beside);
  work.scale_gradient[c] = static_cast<float>(product * inverse);
  work.shift_gradient[c] = static_cast<float>(sums[0]);
  work.mean[c] = static_cast<float>(work.of.mean[c] * work.sample_share);
  const double unbiased = n > 1 ? n / (n - 1) : 1;
  work.variance[c] = static_cast<float>(work.of.variance[c] * unbiased * work.sample_share);
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

template <class T>
auto norm_gradient_sums_of(const GradientSum& gradients) {
  if (gradients.second == nullptr) return norm_gradient_sums<T, 1>;
  return gradients.third == nullptr ? norm_gradient_sums<T, 2> : norm_gradient_sums<T, 3>;
}

int padded_channels(const RowGrid& grid, ElementType type) {
  return grid.packs * 16 / static_cast<int>(bytes_of(type));
}

Grid grid_over_channels(int channels) { return {.blocks = channels / kChannels, .threads = RowGrid::kThreads}; }

}  // namespace

void launch_norm_sums(cudaStream_t stream, ElementType type, const NormSums& work) {
  launch(type == ElementType::bf16 ? norm_sums<Bf16> : norm_sums<float>, grid_of(work.grid), stream, work);
}

void launch_norm_statistics(cudaStream_t stream, ElementType type, const NormStatistics& work) {
  const int channels = padded_channels(work.grid, type);
  launch(norm_statistics, grid_over_channels(channels), stream, work, channels);
}

void launch_norm_application(cudaStream_t stream, ElementType type, const NormApplication& work) {
  launch(type == ElementType::bf16 ? norm_application<Bf16> : norm_application<float>, grid_of(work.grid), stream,
         work);
}

void launch_norm_gradient_sums(cudaStream_t stream, ElementType type, const NormGradientSums& work) {
  launch(type == ElementType::bf16 ? norm_gradient_sums_of<Bf16>(work.gradients)
                                   : norm_gradient_sums_of<float>(work.gradients),
         grid_of(work.grid), stream, work);
}

void launch_norm_gradients(cudaStream_t stream, ElementType type, const NormGradients& work) {
  const int channels = padded_channels(work.grid, type);
  launch(norm_gradients, grid_over_channels(channels), stream, work, channels);
}

void launch_norm_propagation(cudaStream_t stream, ElementType type, const NormPropagation& work) {
  launch(type == ElementType::bf16 ? norm_propagation<Bf16> : norm_propagation<float>, grid_of(work.grid), stream,
         work);
}

}  // namespace tutti::cuda
