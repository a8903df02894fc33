#pragma once
// The kernels of batch norm. Either way there are three: sums of each chunk of rows, what follows from their sums for
// each channel, and the pass over the values. Sums are f32 within a thread, f64 beyond, always in the same order.

#include "backend/cuda/format.hpp"

#include <cuda_runtime_api.h>

#include <cstdint>

namespace tutti::cuda {

// Numbers of each channel, with the padding, which has zeros.
struct NormChannels {
  double* mean = nullptr;  // and the variance behind it: what was normalized with last
  double* variance = nullptr;
  float* rounded_mean = nullptr;
  float* factor = nullptr;  // y = (x - rounded mean) * factor + offset
  float* offset = nullptr;
  float* slope = nullptr;  // dx = dy * factor - (x - rounded mean) * slope - gradient offset
  float* gradient_offset = nullptr;
};

// Partial sums are of each chunk and channel: of values their mean and the sum of squares about it.
struct NormSums {
  RowGrid grid;
  const void* input = nullptr;
  float2* partials = nullptr;
};
void launch_norm_sums(cudaStream_t stream, ElementType type, const NormSums& work);

struct NormStatistics {
  RowGrid grid;
  const float2* partials = nullptr;  // null: as the running mean and variance say
  std::int64_t channels = 0;
  const float* scale = nullptr;
  const float* shift = nullptr;
  const float* running_mean = nullptr;
  const float* running_variance = nullptr;
  double epsilon = 0;
  NormChannels result;
};
void launch_norm_statistics(cudaStream_t stream, ElementType type, const NormStatistics& work);

struct NormApplication {
  RowGrid grid;
  const void* input = nullptr;
  const void* residual = nullptr;  // or null
  void* output = nullptr;
  bool relu = false;
  std::uint8_t* positive = nullptr;  // a byte for each pack, or null
  NormChannels channels;
};
void launch_norm_application(cudaStream_t stream, ElementType type, const NormApplication& work);

// Of gradients, partial sums are of themselves and of them times x - rounded mean.
struct NormGradientSums {
  RowGrid grid;
  GradientSum gradients;
  const void* input = nullptr;
  const std::uint8_t* positive = nullptr;  // or null: everywhere
  void* summed = nullptr;                  // gets the sum of the gradients where positive; or null
  const float* rounded_mean = nullptr;
  float2* partials = nullptr;
};
void launch_norm_gradient_sums(cudaStream_t stream, ElementType type, const NormGradientSums& work);

struct NormGradients {
  RowGrid grid;
  const float2* partials = nullptr;
  std::int64_t channels = 0;
  const float* scale = nullptr;
  double epsilon = 0;
  double sample_share = 1;
  NormChannels of;  // slope and gradient offset are written
  float* scale_gradient = nullptr;
  float* shift_gradient = nullptr;
  float* mean = nullptr;      // times the share, as is
  float* variance = nullptr;  // the unbiased one
};
void launch_norm_gradients(cudaStream_t stream, ElementType type, const NormGradients& work);

struct NormPropagation {
  RowGrid grid;
  const void* gradient = nullptr;
  const std::uint8_t* positive = nullptr;  // or null: everywhere
  const void* input = nullptr;
  void* input_gradient = nullptr;
  NormChannels channels;
};
void launch_norm_propagation(cudaStream_t stream, ElementType type, const NormPropagation& work);

}  // namespace tutti::cuda
