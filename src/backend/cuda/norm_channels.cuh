#pragma once
// What the kernels of batch norm have in common: the per-channel values that they leave each other, and the blocks of
// those that sum. Sums are f32 within a thread and f64 across threads, in a fixed order.

#include "channel_sums.cuh"

namespace tutti::cuda {

// The blocks of the kernels that sum: their threads, how many a multiprocessor has at once, and how many packs a thread
// loads before it uses them.
template <int kThreadsOfBlock, int kBlocks, int kPacks>
struct SumBlocks {
  static constexpr int kThreads = kThreadsOfBlock;
  static constexpr int kResident = kBlocks;
  static constexpr int kLoads = kPacks;
};
// The fastest on an H200: the partial sums of few blocks are finished soonest.
using NormBlocks = SumBlocks<512, 1, 8>;

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

}  // namespace tutti::cuda
