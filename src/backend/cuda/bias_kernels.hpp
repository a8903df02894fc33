#pragma once
// Kernels for what layers with weights do besides the convolution: bias and ReLU on the output, and the gradient that
// goes back through them.

#include "backend/cuda/gradient_sum.hpp"
#include "backend/cuda/rows.hpp"

#include <cuda_runtime_api.h>

#include <cstdint>

namespace tutti::cuda {

// values += bias, then max(0, values) when relu. In place.
struct BiasRelu {
  RowGrid grid;
  void* values = nullptr;
  std::int64_t channels = 0;
  const float* bias = nullptr;  // of each channel; null without
  bool relu = false;
};
void launch_bias_relu(cudaStream_t stream, ElementType type, const BiasRelu& work);

// The sum of the gradients where the output is positive, and the sums of that over each chunk of rows.
struct OutputGradient {
  RowGrid grid;
  GradientSum gradients;
  const void* output = nullptr;  // null: everywhere
  void* result = nullptr;        // null where it is the first of the gradients as it is
  float* partials = nullptr;     // chunks x padded channels; null: not wanted
};
void launch_output_gradient(cudaStream_t stream, ElementType type, const OutputGradient& work);

}  // namespace tutti::cuda
