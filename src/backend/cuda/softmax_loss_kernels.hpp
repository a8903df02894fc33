#pragma once
// The kernel of softmax_loss.cpp.

#include "tutti/backend/tensor.hpp"

#include <cuda_runtime_api.h>

#include <cstdint>

namespace tutti::cuda {

// Logits and gradient are samples x stride, of which the first `classes` are values.
struct SoftmaxWork {
  const void* logits;
  void* gradient;  // or null
  const std::int32_t* labels;
  std::int64_t samples;
  int classes;
  int stride;
  double smoothing;
  float gradient_scale;
  double* losses;         // by block
  unsigned* blocks_done;  // zero before and after
  std::int64_t* sums;     // LossSums' figures
};

std::int64_t softmax_blocks(std::int64_t samples);
// Asynchronous.
void launch_softmax_loss(cudaStream_t stream, const SoftmaxWork& work, ElementType type);

}  // namespace tutti::cuda
