#pragma once
// Which GPUs this process sees, and which libraries serve them.

#include "tutti/backend/cuda_library.hpp"

namespace tutti::cuda {

CudaInventory query_devices();
// As CudaLibrary says.
std::int64_t free_bytes(int device);

}  // namespace tutti::cuda
