#pragma once
// How the threads of a grid divide an activation: by rows, where each thread has one pack of channels, or by runs of
// packs, where a pack's position in its run matters.

#include "backend/cuda/format.hpp"
#include "kernel.cuh"

#include <type_traits>

namespace tutti::cuda {

inline Grid grid_of(const RowGrid& rows) {
  return {.blocks = rows.columns, .blocks_y = rows.chunks, .threads = RowGrid::kThreads};
}

// Packs begin, begin + step, ... below end of the activation.
struct RowShare {
  int pack;  // of each row
  int row;   // of those that the block has at a time
  std::int64_t begin;
  std::int64_t end;
  int step;
};

__device__ inline RowShare share_of_thread(const RowGrid& grid, int chunk) {
  const int thread = static_cast<int>(threadIdx.x);
  RowShare share;
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

// Calls visit(count, i) for `count` packs i, i + step, ... at a time, so that they are read together: kTogether of
// them, in the end one by one. The count is a std::integral_constant.
template <int kTogether, class Visit>
__device__ inline void for_each_pack(const RowShare& share, Visit visit) {
  std::int64_t i = share.begin;
  for (; i + (kTogether - 1) * share.step < share.end; i += kTogether * share.step) {
    visit(std::integral_constant<int, kTogether>(), i);
  }
  for (; i < share.end; i += share.step) visit(std::integral_constant<int, 1>(), i);
}

// The threads of a block as rows of `width`; the block may have more threads.
struct Tile {
  int width;
  int height;
};

// Adds up each column of a tile of threads, as a tree; the threads of the first row get the sums. All threads of the
// block must call it.
template <int kValues>
__device__ inline void add_rows(const Tile& tile, double (&values)[kValues]) {
  __shared__ double others[kValues][RowGrid::kThreads / 2];
  const int thread = static_cast<int>(threadIdx.x);
  const int row = thread / tile.width;
  for (int left = tile.height; left > 1;) {
    const int half = (left + 1) / 2;
    if (row >= half && row < left) {
#pragma unroll
      for (int k = 0; k < kValues; ++k) others[k][thread - half * tile.width] = values[k];
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

// The packs of an activation as runs of equal length: the rows of images, or whole samples. Indices within a run are
// 32-bit numbers, so that dividing them is cheap.
struct Runs {
  std::int64_t count = 0;
  int packs = 0;  // of each

  Grid grid() const {
    constexpr int kWarp = 32;
    constexpr int kMostThreads = 256;
    const int threads = packs < kMostThreads ? (packs + kWarp - 1) / kWarp * kWarp : kMostThreads;
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
