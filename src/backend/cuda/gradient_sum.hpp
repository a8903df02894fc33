#pragma once
// The gradient of an activation that several layers read.

#include "tutti/backend/cuda_stream.hpp"
#include "tutti/backend/layer.hpp"

#include "backend/cuda/gradient_sum_kernels.hpp"

namespace tutti::cuda {

// What backward passes start with. Where there are more than three, the others are added to the third by a pass of its
// own. Asynchronous.
GradientSum gradients_of(CudaStream& stream, const LayerBackward& pass, const ActivationSpec& output);

}  // namespace tutti::cuda
