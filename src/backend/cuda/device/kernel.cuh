#pragma once
// What kernels may use of CUDA, and launch(). The tests replace this file by tests/standin/device/kernel.cuh, which
// lists that subset and implements it on the host. Who needs more adds it there.

#include "backend/cuda/runtime.hpp"

#include <cuda_bf16.h>
#include <cuda_runtime_api.h>

#include <cstdint>

namespace tutti::cuda {

struct Grid {
  std::int64_t blocks = 1;
  std::int64_t blocks_y = 1;
  int threads = 256;  // of a block
};

// Asynchronous. Does nothing for a grid without blocks.
template <class... Parameters, class... Arguments>
void launch(void (*kernel)(Parameters...), const Grid& grid, cudaStream_t stream, const Arguments&... arguments) {
  if (grid.blocks == 0 || grid.blocks_y == 0) return;
  const dim3 blocks(static_cast<unsigned>(grid.blocks), static_cast<unsigned>(grid.blocks_y));
  kernel<<<blocks, static_cast<unsigned>(grid.threads), 0, stream>>>(arguments...);
  check(cudaGetLastError());
}

}  // namespace tutti::cuda
