#pragma once
// The kernel behind CudaLibrary::sgd_step, as plain numbers: the .cu file compiles without our other headers.

#include <cuda_runtime_api.h>

#include <cstdint>

namespace tutti::cuda {

struct SgdBlock {
  float* weights;
  const float* gradients;
  float* velocity;               // null without momentum
  const float* gradient_factor;  // null stands for 1
  const float* rate_factor;      // likewise
  std::int64_t elements;
  float learning_rate;
  float momentum;
  float weight_decay;
  bool nesterov;
};

// Asynchronous.
cudaError_t launch_sgd(cudaStream_t stream, const SgdBlock& block);

}  // namespace tutti::cuda
