#pragma once
// How threads share out an activation when its packs come in many runs of equal length (the rows of images, or whole
// samples) and a pack's place in its run matters: indices within a run are narrow, so that dividing them is cheap.

#include "kernel.cuh"

namespace tutti::cuda {

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
