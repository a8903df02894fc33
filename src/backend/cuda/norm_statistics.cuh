#pragma once
// The statistics of batch norm's forward pass: a kernel that sums each chunk of rows, whose last block computes the
// mean, the variance and the per-channel values of the application from these sums.

#include "norm_channels.cuh"

namespace tutti::cuda {

struct NormStatistics {
  std::int64_t channels = 0;
  const float* scale = nullptr;
  const float* shift = nullptr;
  double epsilon = 0;
  NormChannels result;
  // Null, or receives this batch's part of the sums over the whole batch instead of the result: for each channel the
  // sums of its values and of their squares, then the number of values; f64 [2 * channels + 1].
  double* totals = nullptr;
};

// The partial sums are the mean of the chunk's values and the sum of squares about that mean.
struct NormSums {
  RowGrid grid;
  const void* input = nullptr;
  PartialSums<float2> partials;
  NormStatistics statistics;
};

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

__device__ inline void set_statistics(const NormStatistics& work, int c, double mean, double variance) {
  const bool real = c < work.channels;
  const double factor = real ? work.scale[c] / sqrt(variance + work.epsilon) : 0;
  const auto rounded = static_cast<float>(mean);
  work.result.mean[c] = mean;
  work.result.variance[c] = variance;
  work.result.rounded_mean[c] = rounded;
  work.result.factor[c] = static_cast<float>(factor);
  work.result.offset[c] = real ? static_cast<float>(work.shift[c] + (rounded - mean) * factor) : 0.0f;
}

__device__ inline void set_statistics_from_sums(const NormStatistics& work, int c, double n, double sum,
                                                double squares) {
  const double mean = sum / n;
  const double variance = squares / n - mean * mean;
  set_statistics(work, c, mean, variance < 0 ? 0 : variance);
}

template <class T, class Blocks>
__global__ void __launch_bounds__(Blocks::kThreads, Blocks::kResident) norm_sums(NormSums work) {
  constexpr int kSize = Floats<T>::kSize;
  const RowShare share = share_of_thread(work.grid, reversed_chunk());
  Moments<T> moments{};
  if (share.begin < share.end) moments.about = load_pack<T>(work.input, share.begin);
  int rows = 0;
  for_each_pack<Blocks::kLoads>(share, [&](auto count, std::int64_t i) {
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
  const double rows_here = static_cast<double>(rows_of_chunk(work.grid, share.chunk));
  const auto part = [&](double2 of_block) -> float2 {
    const double mean = of_block.x / rows_here;
    const double squares = of_block.y - of_block.x * mean;
    return {static_cast<float>(mean), static_cast<float>(squares < 0 ? 0 : squares)};
  };
  const auto add_chunk = [&](double(&all)[2], float2 partial, int of) {
    const double mean = partial.x;
    const double sum = mean * static_cast<double>(rows_of_chunk(work.grid, of));
    all[0] += sum;
    all[1] += partial.y + sum * mean;
  };
  const auto finish = [&](int channel, const double(&all)[2]) {
    const auto n = static_cast<double>(work.grid.rows);
    if (work.statistics.totals != nullptr) {
      set_totals(work.statistics.totals, work.statistics.channels, channel, n, all);
    } else {
      set_statistics_from_sums(work.statistics, channel, n, all[0], all[1]);
    }
  };
  add_channels<Blocks::kThreads, kSize>(work.grid, work.partials, share, sums, part, add_chunk, finish);
}

}  // namespace tutti::cuda
