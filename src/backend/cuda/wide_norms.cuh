#pragma once
// Candidates for the kernels of batch norm, which tests/backend/norm_speed.cu compares on a GPU: sums by large blocks,
// whose few partial sums are finished sooner, and kernels over the values that load ahead, also while the kernel before
// them ends.

#include "batch_norm.cuh"
#include "flat.cuh"

namespace tutti::cuda {

// Two sums for each channel of a block.
template <int kThreads, int kSize>
struct ChannelSums {
  double2 values[kThreads / kWarpLanes * RowGrid::kWidestOfSums * kSize];
};

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
template <int kThreads, int kSize, class Part, class Add, class Finish>
__device__ inline void add_channels(const RowGrid& grid, const PartialSums<float2>& partials, const RowShare& share,
                                    const double (&values)[2 * kSize], Part part, Add add, Finish finish) {
  __shared__ ChannelSums<kThreads, kSize> shared;
  const int thread = static_cast<int>(threadIdx.x);
  const int of_block = grid.width * kSize;
  const int channels = grid.packs * kSize;
  const int channel = static_cast<int>(blockIdx.x) * of_block + thread % of_block;
  double2* const of_warp = shared.values + thread / kWarpLanes * of_block;
  add_lanes(values, grid.width, 0, reinterpret_cast<double*>(of_warp + thread % grid.width * kSize));
  __syncthreads();
  if (thread < of_block && channel < channels) {
    partials.values[static_cast<std::int64_t>(share.chunk) * channels + channel] =
        part(sum_of_rows(shared.values + thread, kThreads / kWarpLanes, of_block));
  }
  if (!is_last_block(partials.blocks_done + blockIdx.x, gridDim.y)) return;
  const int rows = kThreads / of_block;
  const int chunks = channel < channels ? grid.chunks : 0;
  double sums[2] = {};
#pragma unroll 8
  for (int chunk = thread / of_block; chunk < chunks; chunk += rows) {
    add(sums, partials.values[static_cast<std::int64_t>(chunk) * channels + channel], chunk);
  }
  shared.values[thread] = {sums[0], sums[1]};
  __syncthreads();
  if (thread >= of_block || channel >= channels) return;
  const double2 all = sum_of_rows(shared.values + thread, rows, of_block);
  finish(channel, {all.x, all.y});
}

template <class T, int kThreads, int kBlocks, int kUnroll>
__global__ void __launch_bounds__(kThreads, kBlocks) wide_norm_sums(NormSums work) {
  constexpr int kSize = Floats<T>::kSize;
  const RowShare share = share_of_thread(work.grid, reversed_chunk());
  Moments<T> moments{};
  if (share.begin < share.end) moments.about = load_pack<T>(work.input, share.begin);
  int rows = 0;
  for_each_pack<kUnroll>(share, [&](auto count, std::int64_t i) {
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
  let_next_kernel_start();
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
  add_channels<kThreads, kSize>(work.grid, work.partials, share, sums, part, add_chunk, finish);
}

template <class T, int kGradients, int kThreads, int kBlocks, int kUnroll>
__global__ void __launch_bounds__(kThreads, kBlocks) wide_norm_gradient_sums(NormGradientSums work) {
  constexpr int kSize = Floats<T>::kSize;
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
  let_next_kernel_start();
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
  add_channels<kThreads, kSize>(work.grid, work.partials, share, both, part, add_chunk, finish);
}

// The next two kernels load kUnroll packs while they compute those before.
template <class T, int kUnroll, int kBlocks>
__global__ void __launch_bounds__(RowGrid::kThreads, kBlocks) norm_application_ahead(NormApplication work) {
  constexpr int kSize = Floats<T>::kSize;
  const RowShare share = share_of_thread(work.grid, static_cast<int>(blockIdx.y));
  if (share.begin >= share.end) return;
  Pack<T> x[kUnroll] = {};
  Pack<T> residual[kUnroll] = {};
  const auto load_from = [&](std::int64_t first) {
#pragma unroll
    for (int n = 0; n < kUnroll; ++n) {
      const std::int64_t i = first + n * share.step;
      if (i < share.end) x[n] = load_pack<T>(work.input, i);
      if (i < share.end && work.residual != nullptr) residual[n] = load_pack<T>(work.residual, i);
    }
  };
  load_from(share.begin);
  wait_for_kernel_before();
  const auto mean = load_channels<T>(work.channels.rounded_mean, share.pack);
  const auto factor = load_channels<T>(work.channels.factor, share.pack);
  const auto offset = load_channels<T>(work.channels.offset, share.pack);
  const int step = kUnroll * share.step;
  for (std::int64_t first = share.begin; first < share.end; first += step) {
    Pack<T> now[kUnroll];
    Pack<T> added[kUnroll];
#pragma unroll
    for (int n = 0; n < kUnroll; ++n) {
      now[n] = x[n];
      added[n] = residual[n];
    }
    load_from(first + step);
#pragma unroll
    for (int n = 0; n < kUnroll; ++n) {
      const std::int64_t i = first + n * share.step;
      if (i >= share.end) break;
      Floats<T> y = floats_of(now[n]);
#pragma unroll
      for (int k = 0; k < kSize; ++k) {
        y.values[k] = (y.values[k] - mean.values[k]) * factor.values[k] + offset.values[k];
      }
      if (work.residual != nullptr) add(y, floats_of(added[n]));
      if (work.positive != nullptr) work.positive[i] = static_cast<std::uint8_t>(positive_bits(y));
      if (work.relu) rectify(y);
      store(work.output, i, y);
    }
  }
}

template <class T, int kUnroll, int kBlocks>
__global__ void __launch_bounds__(RowGrid::kThreads, kBlocks) norm_propagation_ahead(NormPropagation work) {
  constexpr int kSize = Floats<T>::kSize;
  const RowShare share = share_of_thread(work.grid, static_cast<int>(blockIdx.y));
  if (share.begin >= share.end) return;
  Pack<T> x[kUnroll] = {};
  Pack<T> gradients[kUnroll] = {};
  unsigned bits[kUnroll] = {};
  const auto load_inputs = [&](std::int64_t first) {
#pragma unroll
    for (int n = 0; n < kUnroll; ++n) {
      const std::int64_t i = first + n * share.step;
      if (i < share.end) x[n] = load_pack<T>(work.input, i);
    }
  };
  const auto load_gradients = [&](std::int64_t first) {
#pragma unroll
    for (int n = 0; n < kUnroll; ++n) {
      const std::int64_t i = first + n * share.step;
      if (i < share.end) gradients[n] = load_pack<T>(work.gradient, i);
      if (i < share.end && work.positive != nullptr) bits[n] = work.positive[i];
    }
  };
  load_inputs(share.begin);
  if (!work.gradient_is_new) load_gradients(share.begin);
  wait_for_kernel_before();
  if (work.gradient_is_new) load_gradients(share.begin);
  const auto mean = load_channels<T>(work.channels.rounded_mean, share.pack);
  const auto factor = load_channels<T>(work.channels.factor, share.pack);
  const auto slope = load_channels<T>(work.channels.slope, share.pack);
  const auto offset = load_channels<T>(work.channels.gradient_offset, share.pack);
  const int step = kUnroll * share.step;
  for (std::int64_t first = share.begin; first < share.end; first += step) {
    Pack<T> now[kUnroll];
    Pack<T> gradients_now[kUnroll];
    unsigned bits_now[kUnroll];
#pragma unroll
    for (int n = 0; n < kUnroll; ++n) {
      now[n] = x[n];
      gradients_now[n] = gradients[n];
      bits_now[n] = bits[n];
    }
    load_inputs(first + step);
    load_gradients(first + step);
#pragma unroll
    for (int n = 0; n < kUnroll; ++n) {
      const std::int64_t i = first + n * share.step;
      if (i >= share.end) break;
      const Floats<T> input = floats_of(now[n]);
      Floats<T> gradient = floats_of(gradients_now[n]);
      if (work.positive != nullptr) keep_bits(gradient, bits_now[n]);
#pragma unroll
      for (int k = 0; k < kSize; ++k) {
        gradient.values[k] = gradient.values[k] * factor.values[k] -
                             (input.values[k] - mean.values[k]) * slope.values[k] - offset.values[k];
      }
      store(work.input_gradient, i, gradient);
    }
  }
}

}  // namespace tutti::cuda
