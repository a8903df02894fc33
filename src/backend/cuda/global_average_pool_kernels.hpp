#pragma once
// The kernels of global average pooling.

#include "backend/cuda/gradient_sum_kernels.hpp"

#include <cuda_runtime_api.h>

#include <cstdint>

namespace tutti::cuda {

struct GlobalAverage {
  ElementType type = ElementType::f32;
  std::int64_t samples = 0;
  int packs = 0;  // of a pixel
  int pixels = 0;
};
void launch_global_average(const GlobalAverage& work, const void* input, void* output, cudaStream_t stream);
void launch_global_average_gradient(const GlobalAverage& work, const GradientSum& gradients, void* input_gradient,
                                    cudaStream_t stream);

}  // namespace tutti::cuda
