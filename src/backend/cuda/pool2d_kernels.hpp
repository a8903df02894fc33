#pragma once
// The kernels of pooling. Each gradient is gathered: a pixel of the input asks the windows that cover it.

#include "backend/cuda/gradient_sum_kernels.hpp"

#include <cuda_runtime_api.h>

#include <cstdint>

namespace tutti::cuda {

struct PoolExtents {
  std::int64_t samples = 0;
  int packs = 0;  // of a pixel
  int height = 0;
  int width = 0;
  int output_height = 0;
  int output_width = 0;
  int kernel = 0;
  int stride = 0;
  int padding = 0;

  // Whether the places of a window can be counted in a byte.
  bool is_narrow() const { return kernel <= 16; }
};

struct Pool {
  ElementType type = ElementType::f32;
  PoolExtents extents;
  const void* input = nullptr;
  void* output = nullptr;
  // Of the greatest of each window and channel its place there, row by row, in a byte if narrow, else in four. Null:
  // not wanted.
  void* places = nullptr;
};
// The first of equals is the greatest; what is no number is greater than all.
void launch_max_pool(cudaStream_t stream, const Pool& work);
void launch_average_pool(cudaStream_t stream, const Pool& work);

struct PoolGradient {
  ElementType type = ElementType::f32;
  PoolExtents extents;
  GradientSum gradients;
  const void* places = nullptr;
  void* input_gradient = nullptr;
};
void launch_max_pool_gradient(cudaStream_t stream, const PoolGradient& work);
void launch_average_pool_gradient(cudaStream_t stream, const PoolGradient& work);

}  // namespace tutti::cuda
