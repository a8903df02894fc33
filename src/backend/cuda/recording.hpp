#pragma once
// Work of a stream noted as a CUDA graph.

#include "tutti/backend/cuda_stream.hpp"

#include <functional>
#include <memory>

namespace tutti::cuda {

// As Backend::record.
std::unique_ptr<Recording> record(CudaStream& stream, const std::function<void()>& enqueue);

}  // namespace tutti::cuda
