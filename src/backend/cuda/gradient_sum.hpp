#pragma once
// The gradient of an activation that several layers read, for kernels that add up what each of them gives as they go.

#include "tutti/backend/cuda_stream.hpp"
#include "tutti/backend/layer.hpp"

#include <cuda_runtime_api.h>

namespace tutti::cuda {

struct GradientSum {
  const void* first = nullptr;
  const void* second = nullptr;  // or null, as the third
  const void* third = nullptr;
};

// Where there are more than three, the others are added to the third by a pass of its own. Asynchronous.
GradientSum gradients_of(CudaStream& stream, const LayerBackward& pass, const ActivationSpec& output);

struct GradientAddition {
  GradientSum sum;
  void* to = nullptr;
  std::int64_t packs = 0;
};
void launch_gradient_addition(ElementType type, const GradientAddition& work, cudaStream_t stream);

}  // namespace tutti::cuda
