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

// As launch(), but the kernel may start when all blocks of the one before it on the stream have called
// let_next_kernel_start(), on GPUs that can do that (Hopper and later). It must call wait_for_kernel_before() before it
// uses what that kernel writes, or writes anything.
template <class... Parameters, class... Arguments>
void launch_overlapping(void (*kernel)(Parameters...), const Grid& grid, cudaStream_t stream,
                        const Arguments&... arguments) {
  int device = 0;
  int generation = 0;
  check(cudaGetDevice(&device));
  check(cudaDeviceGetAttribute(&generation, cudaDevAttrComputeCapabilityMajor, device));
  if (generation < 9) return launch(kernel, grid, stream, arguments...);
  if (grid.blocks == 0 || grid.blocks_y == 0) return;
  cudaLaunchAttribute attribute{};
  attribute.id = cudaLaunchAttributeProgrammaticStreamSerialization;
  attribute.val.programmaticStreamSerializationAllowed = 1;
  cudaLaunchConfig_t config{};
  config.gridDim = dim3(static_cast<unsigned>(grid.blocks), static_cast<unsigned>(grid.blocks_y));
  config.blockDim = dim3(static_cast<unsigned>(grid.threads));
  config.stream = stream;
  config.attrs = &attribute;
  config.numAttrs = 1;
  check(cudaLaunchKernelEx(&config, kernel, Parameters(arguments)...));
}

#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
__device__ inline void let_next_kernel_start() { asm volatile("griddepcontrol.launch_dependents;"); }
__device__ inline void wait_for_kernel_before() { asm volatile("griddepcontrol.wait;" ::: "memory"); }
#else
__device__ inline void let_next_kernel_start() {}
__device__ inline void wait_for_kernel_before() {}
#endif

}  // namespace tutti::cuda
