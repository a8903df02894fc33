#pragma once
// Sums of two values for each channel over all rows of an activation: over the threads of large blocks, of which a GPU
// runs few, then over the few blocks. The order of the additions depends on the grid alone.

#include "flat.cuh"
#include "floats.cuh"
#include "grids.cuh"

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

}  // namespace tutti::cuda
