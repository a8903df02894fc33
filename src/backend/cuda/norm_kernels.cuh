#pragma once
// The kernels of batch norm: those that sum each chunk of rows, whose last block computes per-channel values from these
// sums, and those that go over the values with them.

#include "flat.cuh"
#include "floats.cuh"
#include "grids.cuh"

namespace tutti::cuda {

// The blocks of the kernels that sum. These are the fastest on an H200: the partial sums of few blocks are finished
// soonest.
struct NormBlocks {
  static constexpr int kThreads = 512;
  static constexpr int kResident = 1;  // of a multiprocessor at once
  static constexpr int kLoads = 8;     // packs that a thread loads before it uses them
};

// Sums of two values for each channel over all rows of an activation: over the threads of large blocks, of which a GPU
// runs few, then over the few blocks. Sums are f32 within a thread and f64 across threads. The order of the additions
// depends on the grid alone.

// Adds the values of the rows of a warp, whose lanes `distance`, 2 * `distance`, ... apart have the same pack. Each
// lane keeps a part of the sums and writes it.
template <int kLeft>
__device__ inline void add_lanes(const double (&values)[kLeft], int distance, int first, double* to) {
  const int lane = static_cast<int>(threadIdx.x) % kWarpLanes;
  if constexpr (kLeft == 1) {
    double sum = values[0];
    for (int apart = distance; apart < kWarpLanes; apart *= 2) sum += __shfl_xor_sync(kWholeWarp, sum, apart);
    if ((lane & (kWarpLanes - distance)) == 0) to[first] = sum;
  } else {
    if (distance == kWarpLanes) {
#pragma unroll
      for (int k = 0; k < kLeft; ++k) to[first + k] = values[k];
      return;
    }
    constexpr int kHalf = kLeft / 2;
    const bool is_upper = (lane & distance) != 0;
    double kept[kHalf];
#pragma unroll
    for (int k = 0; k < kHalf; ++k) {
      const double sent = is_upper ? values[k] : values[kHalf + k];
      kept[k] = (is_upper ? values[kHalf + k] : values[k]) + __shfl_xor_sync(kWholeWarp, sent, distance);
    }
    add_lanes<kHalf>(kept, 2 * distance, is_upper ? first + kHalf : first, to);
  }
}

// Four sums at a time, since each addition waits for the one before it. The number of rows is a multiple of four.
__device__ inline double2 sum_of_rows(const double2* from, int rows, int step) {
  double2 parts[4] = {};
  for (int row = 0; row < rows; row += 4) {
#pragma unroll
    for (int k = 0; k < 4; ++k) {
      const double2 value = from[(row + k) * step];
      parts[k].x += value.x;
      parts[k].y += value.y;
    }
  }
  return {(parts[0].x + parts[1].x) + (parts[2].x + parts[3].x), (parts[0].y + parts[1].y) + (parts[2].y + parts[3].y)};
}

// Adds up the two values per channel of all threads of the grid: gives part(sums of the block) to the last block, which
// calls add(sums, part, chunk) for every chunk in a fixed order, then finish(channel, sums). All threads must call it.
template <int kSize, class Part, class Add, class Finish>
__device__ inline void add_channels(const RowGrid& grid, const PartialSums<float2>& partials, const RowShare& share,
                                    const double (&values)[2 * kSize], Part part, Add add, Finish finish) {
  constexpr int kThreads = NormBlocks::kThreads;
  __shared__ double2 shared[kThreads / kWarpLanes * RowGrid::kWidestOfSums * kSize];  // of each channel of the block
  const int thread = static_cast<int>(threadIdx.x);
  const int of_block = grid.width * kSize;
  const int channels = grid.packs * kSize;
  const int channel = static_cast<int>(blockIdx.x) * of_block + thread % of_block;
  double2* const of_warp = shared + thread / kWarpLanes * of_block;
  add_lanes(values, grid.width, 0, reinterpret_cast<double*>(of_warp + thread % grid.width * kSize));
  __syncthreads();
  if (thread < of_block && channel < channels) {
    partials.values[static_cast<std::int64_t>(share.chunk) * channels + channel] =
        part(sum_of_rows(shared + thread, kThreads / kWarpLanes, of_block));
  }
  if (!is_last_block(partials.blocks_done + blockIdx.x, gridDim.y)) return;
  const int rows = kThreads / of_block;
  const int chunks = channel < channels ? grid.chunks : 0;
  double sums[2] = {};
#pragma unroll 8
  for (int chunk = thread / of_block; chunk < chunks; chunk += rows) {
    add(sums, partials.values[static_cast<std::int64_t>(chunk) * channels + channel], chunk);
  }
  shared[thread] = {sums[0], sums[1]};
  __syncthreads();
  if (thread >= of_block || channel >= channels) return;
  const double2 all = sum_of_rows(shared + thread, rows, of_block);
  finish(channel, {all.x, all.y});
}

// Per-channel values, including padding channels, which are zero.
struct NormChannels {
  double* mean = nullptr;  // the statistics of the last forward pass, followed by the variance
  double* variance = nullptr;
  double* count = nullptr;  // a single one: the values of each channel of the whole batch
  float* rounded_mean = nullptr;
  float* factor = nullptr;  // y = (x - rounded mean) * factor + offset
  float* offset = nullptr;
  float* slope = nullptr;  // dx = dy * factor - (x - rounded mean) * slope - gradient offset
  float* gradient_offset = nullptr;
};

__device__ inline void set_totals(double* totals, std::int64_t channels, int c, double n, const double (&sums)[2]) {
  if (c >= channels) return;
  totals[2 * c] = sums[0];
  totals[2 * c + 1] = sums[1];
  if (c == 0) totals[2 * channels] = n;
}

// Kernels process values that were just written in reverse order, since the last ones are still in the cache.
__device__ inline int reversed_chunk() { return static_cast<int>(gridDim.y - 1 - blockIdx.y); }

// The statistics of the forward pass.

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

template <class T>
__global__ void __launch_bounds__(NormBlocks::kThreads, NormBlocks::kResident) norm_sums(NormSums work) {
  constexpr int kSize = Floats<T>::kSize;
  const RowShare share = share_of_thread(work.grid, reversed_chunk());
  Moments<T> moments{};
  if (share.begin < share.end) moments.about = load_pack<T>(work.input, share.begin);
  int rows = 0;
  for_each_pack<NormBlocks::kLoads>(share, [&](auto count, std::int64_t i) {
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
  add_channels<kSize>(work.grid, work.partials, share, sums, part, add_chunk, finish);
}

// The per-channel gradients of the backward pass.

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
__global__ void __launch_bounds__(NormBlocks::kThreads, NormBlocks::kResident)
    norm_gradient_sums(NormGradientSums work) {
  constexpr int kSize = Floats<T>::kSize;
  constexpr int kUnroll = NormBlocks::kLoads / (kGradients == 3 ? 4 : 2);
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
  const auto part = [](double2 of_block) -> float2 {
    return {static_cast<float>(of_block.x), static_cast<float>(of_block.y)};
  };
  const auto add_chunk = [](double(&all)[2], float2 partial, int) {
    all[0] += partial.x;
    all[1] += partial.y;
  };
  const auto finish = [&](int channel, const double(&all)[2]) {
    set_gradients(work.channels, channel, static_cast<double>(work.grid.rows), all);
  };
  add_channels<kSize>(work.grid, work.partials, share, both, part, add_chunk, finish);
}

// The forward pass's application, and the backward pass's propagation.

struct NormApplication {
  RowGrid grid;
  const void* input = nullptr;
  const void* residual = nullptr;  // or null
  void* output = nullptr;
  bool relu = false;
  std::uint8_t* positive = nullptr;  // a byte for each pack, or null
  NormChannels channels;
};

struct NormPropagation {
  RowGrid grid;
  const void* gradient = nullptr;
  const std::uint8_t* positive = nullptr;  // or null: everywhere
  const void* input = nullptr;
  void* input_gradient = nullptr;
  NormChannels channels;
};

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

}  // namespace tutti::cuda
