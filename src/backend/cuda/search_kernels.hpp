#pragma once
// The kernel of plan_search.cpp.

#include "tutti/backend/tensor.hpp"

#include <cuda_runtime_api.h>

#include <cstddef>

namespace tutti::cuda {

// Values in -1 .. 1 with all digits random: on zeros processors run faster than on what networks hold. Asynchronous.
void launch_random_values(cudaStream_t stream, ElementType type, void* to, std::size_t bytes);

}  // namespace tutti::cuda
