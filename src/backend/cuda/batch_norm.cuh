#pragma once
// The statistics of batch norm's forward pass: sums over each chunk of rows, and the per-channel values computed from
// them. Sums are f32 within a thread and f64 across threads, in a fixed order.

#include "floats.cuh"
#include "grids.cuh"

namespace tutti::cuda {

// Per-channel values, including padding channels, which are zero.
struct NormChannels {
  double* mean = nullptr;  // the statistics of the last forward pass, followed by the variance
  double* variance = nullptr;
  double* count = nullptr;  // one for all: the values of a channel from which the statistics are
  float* rounded_mean = nullptr;
  float* factor = nullptr;  // y = (x - rounded mean) * factor + offset
  float* offset = nullptr;
  float* slope = nullptr;  // dx = dy * factor - (x - rounded mean) * slope - gradient offset
  float* gradient_offset = nullptr;
};

// The partial sums of each chunk and channel are the mean of its values and the sum of squares about that mean.
struct NormSums {
  RowGrid grid;
  const void* input = nullptr;
  float2* partials = nullptr;
};

// Two sums of each channel in turn, of its values and of their squares, and then the number of values:
// f64 [2 * channels + 1].
struct NormTotals {
  RowGrid grid;
  const float2* partials = nullptr;
  std::int64_t channels = 0;
  double* totals = nullptr;
};

struct NormStatistics {
  RowGrid grid;
  // All null: from the running mean and variance.
  const float2* partials = nullptr;
  const double* totals = nullptr;  // of the whole batch
  std::int64_t channels = 0;
  const float* scale = nullptr;
  const float* shift = nullptr;
  const float* running_mean = nullptr;
  const float* running_variance = nullptr;
  double epsilon = 0;
  NormChannels result;
};

// Kernels process values that were just written in reverse order, since the last ones are still in the cache.
__device__ inline int reversed_chunk() { return static_cast<int>(gridDim.y - 1 - blockIdx.y); }

__device__ inline std::int64_t rows_of_chunk(const RowGrid& grid, std::int64_t chunk) {
  const std::int64_t left = grid.rows - chunk * grid.chunk_rows;
  return left < grid.chunk_rows ? left : grid.chunk_rows;
}

template <class T>
struct Moments {
  Pack<T> about;  // the thread's first value of each channel, subtracted for precision
  Floats<T> sums;
  Floats<T> squares;
};

// The sums of x and x^2 in f64, which can be added across threads; sums about each thread's first value cannot.
template <class T>
__device__ inline void raw_moments(const Moments<T>& moments, double rows, double (&values)[2 * Floats<T>::kSize]) {
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
  const int chunk = reversed_chunk();
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
  raw_moments(moments, rows, sums);
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

// Kernels over partial sums have a few channels per block.
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

// Adds the partial sums of all chunks; the threads of row 0 get the result.
__device__ inline void add_chunks(const RowGrid& grid, const float2* partials, const ChannelOfThread& at,
                                  int padded_channels, double (&sums)[2]) {
  for (int chunk = at.row; chunk < grid.chunks; chunk += kHeight) {
    const float2 part = partials[static_cast<std::int64_t>(chunk) * padded_channels + at.channel];
    const double mean = part.x;
    const double sum = mean * static_cast<double>(rows_of_chunk(grid, chunk));
    sums[0] += sum;
    sums[1] += part.y + sum * mean;
  }
  add_rows({kChannels, kHeight}, sums);
}

__global__ inline void norm_totals(NormTotals work, int padded_channels) {
  const ChannelOfThread at = channel_of_thread();
  double sums[2] = {0, 0};
  add_chunks(work.grid, work.partials, at, padded_channels, sums);
  if (at.row != 0 || at.channel >= work.channels) return;
  work.totals[2 * at.channel] = sums[0];
  work.totals[2 * at.channel + 1] = sums[1];
  if (at.channel == 0) work.totals[2 * work.channels] = static_cast<double>(work.grid.rows);
}

__global__ inline void norm_statistics(NormStatistics work, int padded_channels) {
  const ChannelOfThread at = channel_of_thread();
  double sums[2] = {0, 0};
  if (work.partials != nullptr) add_chunks(work.grid, work.partials, at, padded_channels, sums);
  if (at.row != 0) return;
  const int c = at.channel;
  const bool real = c < work.channels;
  double mean = 0;
  double variance = 0;
  auto rows = static_cast<double>(work.grid.rows);
  if (work.totals != nullptr) {
    rows = work.totals[2 * work.channels];
    if (real) {
      sums[0] = work.totals[2 * c];
      sums[1] = work.totals[2 * c + 1];
    }
  }
  if (c == 0) *work.result.count = rows;
  if (work.partials != nullptr || work.totals != nullptr) {
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

}  // namespace tutti::cuda
