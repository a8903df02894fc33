#pragma once
// What kernels are written with: CUDA's own words, and the one way to start them. The tests bring a file of the same
// name that gives these words a meaning on the host, so kernels use no more of CUDA than that file knows.

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

// Asynchronous. A grid without blocks is nothing to do.
template <class... Parameters, class... Arguments>
void launch(void (*kernel)(Parameters...), const Grid& grid, cudaStream_t stream, const Arguments&... arguments) {
  if (grid.blocks == 0 || grid.blocks_y == 0) return;
  const dim3 blocks(static_cast<unsigned>(grid.blocks), static_cast<unsigned>(grid.blocks_y));
  kernel<<<blocks, static_cast<unsigned>(grid.threads), 0, stream>>>(arguments...);
  check(cudaGetLastError());
}

}  // namespace tutti::cuda
