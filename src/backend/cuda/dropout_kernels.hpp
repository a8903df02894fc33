#pragma once
// The kernels of dropout.

#include "tutti/backend/layer.hpp"

#include "backend/cuda/format.hpp"
#include "backend/cuda/gradient_sum_kernels.hpp"

#include <cuda_runtime_api.h>

#include <cstdint>

namespace tutti::cuda {

// Into the device's memory, so that recorded work finds there what was written since.
void launch_place(cudaStream_t stream, const SamplePlace& place, SamplePlace* to);

struct Dropout {
  ElementType type = ElementType::f32;
  ImageLayout layout;
  const SamplePlace* place = nullptr;  // in the device's memory
  std::uint32_t purpose = 0;
  std::uint64_t drop_below = 0;  // what is dropped: of 2^32 random words, those below
  float factor = 1;              // of what is kept
  const void* input = nullptr;
  void* output = nullptr;
  std::uint8_t* kept = nullptr;  // a byte for each pack, with a bit for each value
};
void launch_dropout(cudaStream_t stream, const Dropout& work);

struct DropoutGradient {
  ElementType type = ElementType::f32;
  ImageLayout layout;
  GradientSum gradients;
  const std::uint8_t* kept = nullptr;
  float factor = 1;
  void* input_gradient = nullptr;
};
void launch_dropout_gradient(cudaStream_t stream, const DropoutGradient& work);

}  // namespace tutti::cuda
