#pragma once
// Divides an activation among the threads of a grid: by rows, where each thread has one pack of channels, for sums and
// values per channel and for elementwise kernels; or by runs of packs, for kernels that need a pack's position in its
// run, as pooling and dropout do.

#include "backend/cuda/format.hpp"
#include "kernel.cuh"

#include <type_traits>

namespace tutti::cuda {

// For kernels without per-block results: many times the blocks that a GPU runs at once, for load balance.
inline std::int64_t elementwise_blocks(int device) { return 24 * multiprocessors(device); }

// The blocks of a kernel that a GPU runs at once, not more, for kernels whose blocks each write partial sums. The order
// of these sums depends on it, so it is a property of the kind of GPU and of this build, whatever else the GPU does.
template <class... Parameters>
std::int64_t sum_blocks(void (*kernel)(Parameters...), int device, int threads = RowGrid::kThreads) {
  use_cuda_device(device);
  int blocks = 0;  // of a multiprocessor
  check(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, reinterpret_cast<const void*>(kernel), threads, 0));
  return blocks * multiprocessors(device);
}

inline Grid grid_of(const RowGrid& rows) {
  return {.blocks = rows.columns, .blocks_y = rows.chunks, .threads = rows.threads};
}

// Packs begin, begin + step, ... below end of the activation.
struct RowShare {
  int chunk;
  int pack;  // of each row
  int row;   // of those that the block has at a time
  std::int64_t begin;
  std::int64_t end;
  int step;
};

__device__ inline RowShare share_of_thread(const RowGrid& grid, int chunk) {
  const int thread = static_cast<int>(threadIdx.x);
  RowShare share;
  share.chunk = chunk;
  share.row = thread / grid.width;
  share.pack = static_cast<int>(blockIdx.x) * grid.width + thread % grid.width;
  const std::int64_t first = chunk * grid.chunk_rows;
  const std::int64_t last = first + grid.chunk_rows < grid.rows ? first + grid.chunk_rows : grid.rows;
  const bool has_rows = share.row < grid.height && share.pack < grid.packs;
  share.begin = (first + share.row) * grid.packs + share.pack;
  share.end = has_rows ? last * grid.packs : share.begin;
  share.step = grid.height * grid.packs;
  return share;
}

// Calls visit(count, i) for `count` packs i, i + step, ... so that their loads overlap: kUnroll at a time, then
// one by one. The count is a std::integral_constant.
template <int kUnroll, class Visit>
__device__ inline void for_each_pack(const RowShare& share, Visit visit) {
  std::int64_t i = share.begin;
  for (; i + (kUnroll - 1) * share.step < share.end; i += kUnroll * share.step) {
    visit(std::integral_constant<int, kUnroll>(), i);
  }
  for (; i < share.end; i += share.step) visit(std::integral_constant<int, 1>(), i);
}

// A view of a block's threads as rows of `width`; the block may have more threads.
struct ThreadRows {
  int width;
  int height;
};

// A tree reduction over the rows of threads; the threads of the first row get the sums. All threads of the
// block must call it.
template <int kValues>
__device__ inline void add_rows(const ThreadRows& rows_of_threads, double (&values)[kValues]) {
  __shared__ double others[kValues][RowGrid::kThreads / 2];
  const int thread = static_cast<int>(threadIdx.x);
  const int row = thread / rows_of_threads.width;
  for (int left = rows_of_threads.height; left > 1;) {
    const int half = (left + 1) / 2;
    if (row >= half && row < left) {
#pragma unroll
      for (int k = 0; k < kValues; ++k) others[k][thread - half * rows_of_threads.width] = values[k];
    }
    __syncthreads();
    if (row < left - half) {
#pragma unroll
      for (int k = 0; k < kValues; ++k) values[k] += others[k][thread];
    }
    __syncthreads();
    left = half;
  }
}

// Whether all other `blocks` blocks have called this before; the calling block then sees what they wrote. All threads
// of the block must call it. `done` is zero before and after a launch.
__device__ inline bool is_last_block(unsigned* done, unsigned blocks) {
  __shared__ bool is_last;
  __syncthreads();
  if (threadIdx.x == 0) {
    __threadfence();
    is_last = atomicAdd(done, 1u) + 1 == blocks;
    __threadfence();
    if (is_last) *done = 0;
  }
  __syncthreads();
  return is_last;
}

// Sums over rows are made of a partial one for each chunk and channel.
template <class Sum>
struct PartialSums {
  Sum* values = nullptr;
  unsigned* blocks_done = nullptr;  // by column of blocks; zero before and after a launch
};

// Stores the sums of a block, which the threads of its first row have. In the last block of each column, then adds
// those of all chunks in a fixed order, and calls finish(channel, sum) once for each channel of the column. All threads
// of the block must call it.
template <int kSize, class Finish>
__device__ inline void finish_sums(const RowGrid& grid, const PartialSums<float>& partials, const RowShare& share,
                                   const float (&of_block)[kSize], Finish finish) {
  const int channels = grid.packs * kSize;
  if (share.row == 0 && share.begin < share.end) {
    float* const to = partials.values + static_cast<std::int64_t>(share.chunk) * channels + share.pack * kSize;
#pragma unroll
    for (int k = 0; k < kSize; ++k) to[k] = of_block[k];
  }
  if (!is_last_block(partials.blocks_done + blockIdx.x, gridDim.y)) return;
  const int thread = static_cast<int>(threadIdx.x);
  const int width = grid.width * kSize;
  const ThreadRows rows{width, RowGrid::kThreads / width};
  const int row = thread / width;
  const int channel = static_cast<int>(blockIdx.x) * width + thread % width;
  double sum[1] = {};
  const int chunks = row < rows.height && channel < channels ? grid.chunks : 0;
#pragma unroll 8
  for (int chunk = row; chunk < chunks; chunk += rows.height) {
    sum[0] += partials.values[static_cast<std::int64_t>(chunk) * channels + channel];
  }
  add_rows(rows, sum);
  if (row == 0 && channel < channels) finish(channel, sum[0]);
}

// The packs of an activation as runs of equal length: the rows of images, or whole samples. Indices within a run are
// 32-bit numbers, so that divisions are cheap.
struct Runs {
  std::int64_t count = 0;
  int packs = 0;  // of each

  Grid grid() const {
    constexpr int kWarp = 32;
    constexpr int kMaxThreads = 256;
    const int threads = packs < kMaxThreads ? (packs + kWarp - 1) / kWarp * kWarp : kMaxThreads;
    const std::int64_t blocks = (std::int64_t{packs} + threads - 1) / threads;
    return {.blocks = count, .blocks_y = blocks < 65535 ? blocks : 65535, .threads = threads};
  }
};

// Calls visit(run, pack of the run, pack of the activation).
template <class Visit>
__device__ inline void for_each_pack(const Runs& runs, Visit visit) {
  const int run = static_cast<int>(blockIdx.x);
  const int step = static_cast<int>(gridDim.y * blockDim.x);
  for (int at = static_cast<int>(blockIdx.y * blockDim.x + threadIdx.x); at < runs.packs; at += step) {
    visit(run, at, static_cast<std::int64_t>(run) * runs.packs + at);
  }
}

}  // namespace tutti::cuda
