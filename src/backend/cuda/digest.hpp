#pragma once
// Digests of tensors in a GPU's memory: the CPU's bits.

#include "tutti/backend/backend.hpp"
#include "tutti/backend/cuda_stream.hpp"

#include <span>

namespace tutti::cuda {

// Asynchronous.
void add_digests(CudaStream& stream, std::span<const DigestedTensor> tensors, const Tensor& digests);

}  // namespace tutti::cuda
