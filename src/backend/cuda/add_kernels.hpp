#pragma once
// The kernels of the layer that adds a residual.

#include "backend/cuda/gradient_sum_kernels.hpp"
#include "backend/cuda/rows.hpp"

#include <cuda_runtime_api.h>

#include <cstdint>

namespace tutti::cuda {

struct Addition {
  RowGrid grid;
  const void* input = nullptr;
  const void* residual = nullptr;
  void* output = nullptr;
  bool relu = false;
  std::uint8_t* positive = nullptr;  // a byte for each pack, or null
};
void launch_addition(cudaStream_t stream, ElementType type, const Addition& work);

struct AdditionGradient {
  RowGrid grid;
  GradientSum gradients;
  const std::uint8_t* positive = nullptr;  // or null: everywhere
  void* summed = nullptr;                  // gets the sum of the gradients where positive; or null
  void* copy = nullptr;                    // gets the same; or null
};
void launch_addition_gradient(cudaStream_t stream, ElementType type, const AdditionGradient& work);

}  // namespace tutti::cuda
