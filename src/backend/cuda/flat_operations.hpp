#pragma once
// Operations over whole tensors in a GPU's memory, behind CudaLibrary.

#include "tutti/backend/backend.hpp"
#include "tutti/backend/cuda_stream.hpp"

namespace tutti::cuda {

// Asynchronous.
void copy(CudaStream& stream, const Tensor& to, const Tensor& from);
// Asynchronous.
void sgd_step(CudaStream& stream, const SgdStep& step);

}  // namespace tutti::cuda
