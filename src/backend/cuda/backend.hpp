#pragma once
// One GPU behind the backend seam.

#include "tutti/backend/backend.hpp"
#include "tutti/backend/cuda_library.hpp"

#include <memory>

namespace tutti::cuda {

std::unique_ptr<Backend> make_backend(const CudaOptions& options);

}  // namespace tutti::cuda
