#pragma once
// Several gradients of one activation for a kernel that adds them up as it reads them, and the kernel for more of them.

#include "tutti/backend/tensor.hpp"

#include <cuda_runtime_api.h>

#include <cstdint>

namespace tutti::cuda {

struct GradientSum {
  const void* first = nullptr;
  const void* second = nullptr;  // or null, as the third
  const void* third = nullptr;
};

struct GradientAddition {
  GradientSum sum;
  void* to = nullptr;
  std::int64_t packs = 0;
};
void launch_gradient_addition(cudaStream_t stream, ElementType type, const GradientAddition& work);

}  // namespace tutti::cuda
