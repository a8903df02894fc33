#pragma once
// Kernels for what layers with weights do besides the convolution: bias and ReLU on the output, and the gradient that
// goes back through them.

#include "tutti/backend/tensor.hpp"

#include "backend/cuda/format.hpp"

#include <cuda_runtime_api.h>

#include <cstdint>

namespace tutti::cuda {

// values += bias, then max(0, values) when relu. In place.
struct BiasRelu {
  ElementType type = ElementType::f32;
  ImageLayout layout;
  void* values = nullptr;
  const float* bias = nullptr;  // of each channel; null without
  bool relu = false;
};
void launch_bias_relu(cudaStream_t stream, const BiasRelu& request);

// gradient += added, then 0 where the output is, and the sums over pixels of what results.
struct OutputGradient {
  ElementType type = ElementType::f32;
  ImageLayout layout;
  void* gradient = nullptr;
  const void* added = nullptr;   // null: nothing
  const void* output = nullptr;  // null: without ReLU
  // partial_sums(layout, type) x padded channels, whose sum over the first is that over all pixels; null: not wanted.
  float* partials = nullptr;
};
std::int64_t partial_sums(const ImageLayout& layout, ElementType type);
void launch_output_gradient(cudaStream_t stream, const OutputGradient& request);

}  // namespace tutti::cuda
