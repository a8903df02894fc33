#pragma once
// A stream as CUDA's own calls, and the launches of kernels, take it.

#include "tutti/backend/cuda_stream.hpp"

#include <cuda_runtime_api.h>

namespace tutti::cuda {

inline cudaStream_t native(const CudaStream& stream) { return static_cast<cudaStream_t>(stream.native()); }

}  // namespace tutti::cuda
