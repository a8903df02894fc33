#pragma once
// Kernels that bring filters from their canonical order into the one that convolutions read, and gradients back.

#include "tutti/backend/tensor.hpp"

#include <cuda_runtime_api.h>

#include <cstdint>
#include <span>

namespace tutti::cuda {

// Canonical: outputs, channels, positions (rows x columns), f32. Packed: padded outputs, positions, padded channels.
struct FilterLayout {
  std::int64_t outputs = 0;
  std::int64_t channels = 0;
  std::int64_t positions = 1;
  std::int64_t padded_outputs = 0;
  std::int64_t padded_channels = 0;

  std::int64_t packed_values() const { return padded_outputs * positions * padded_channels; }
  friend bool operator==(const FilterLayout&, const FilterLayout&) = default;
};

// Zeros between the channels and their padding are written, those of padded outputs are left as they are.
struct FilterPacking {
  FilterLayout layout;
  ElementType type = ElementType::f32;  // of the packed values
  const float* canonical = nullptr;
  void* packed = nullptr;
};
// Of several layers, all of one type.
void launch_pack(cudaStream_t stream, std::span<const FilterPacking> requests);

// What is left to do for the gradients of a layer's parameters.
struct FilterGradients {
  FilterLayout layout;
  ElementType type = ElementType::f32;
  const void* packed = nullptr;
  float* canonical = nullptr;
  std::int64_t partials = 0;             // sums, see bias_kernels.hpp
  const float* bias_partials = nullptr;  // null without bias
  float* bias = nullptr;
};
void launch_unpack(cudaStream_t stream, const FilterGradients& request);

}  // namespace tutti::cuda
