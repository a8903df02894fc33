#pragma once
// The one way to look at what CUDA and cuDNN return.

#include <cuda_runtime_api.h>
#include <cudnn.h>

#include <source_location>

namespace tutti::cuda {

void check(cudaError_t status, std::source_location where = std::source_location::current());
void check(cudnnStatus_t status, std::source_location where = std::source_location::current());

}  // namespace tutti::cuda
