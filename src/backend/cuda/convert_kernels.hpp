#pragma once
// The kernels of convert.cpp.

#include "backend/cuda/format.hpp"

#include <cuda_runtime_api.h>

namespace tutti::cuda {

// Asynchronous.
void launch_to_plain(cudaStream_t stream, const ImageLayout& layout, ElementType type, const void* from, float* plain);
void launch_from_plain(cudaStream_t stream, const ImageLayout& layout, ElementType type, const float* plain, void* to);

}  // namespace tutti::cuda
