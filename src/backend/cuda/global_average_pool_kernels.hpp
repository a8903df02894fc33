#pragma once
// The kernels of global average pooling.

#include "backend/cuda/format.hpp"
#include "backend/cuda/gradient_sum_kernels.hpp"

#include <cuda_runtime_api.h>

namespace tutti::cuda {

struct GlobalAverage {
  ElementType type = ElementType::f32;
  ImageLayout layout;  // of the input
  const void* input = nullptr;
  void* output = nullptr;
};
void launch_global_average(cudaStream_t stream, const GlobalAverage& work);

struct GlobalAverageGradient {
  ElementType type = ElementType::f32;
  ImageLayout layout;  // of the input
  GradientSum gradients;
  void* input_gradient = nullptr;
};
void launch_global_average_gradient(cudaStream_t stream, const GlobalAverageGradient& work);

}  // namespace tutti::cuda
