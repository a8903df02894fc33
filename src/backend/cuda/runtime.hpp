#pragma once
// What all CUDA sources need: checked calls, streams for CUDA's own calls, the memory of tensors for kernels, and the
// devices that this process sees.

#include "tutti/backend/cuda_library.hpp"
#include "tutti/backend/cuda_stream.hpp"

#include <cuda_runtime_api.h>
#include <cudnn.h>

#include <source_location>

namespace tutti::cuda {

void check(cudaError_t status, std::source_location where = std::source_location::current());
void check(cudnnStatus_t status, std::source_location where = std::source_location::current());

// For UniqueHandle: what the release of a handle returns is dropped.
template <auto kRelease>
struct ReleaseBy {
  void operator()(auto handle) const noexcept { static_cast<void>(kRelease(handle)); }
};

// The stream as CUDA's own calls, and the launches of kernels, take it.
inline cudaStream_t native(const CudaStream& stream) { return static_cast<cudaStream_t>(stream.native()); }

// The memory of a tensor. Throws an internal error when it is not a GPU's, or has another type.
float* device_f32(const Tensor& tensor);
double* device_f64(const Tensor& tensor);
std::int32_t* device_i32(const Tensor& tensor);
std::int64_t* device_i64(const Tensor& tensor);

CudaInventory query_devices();
// The free memory of a device. Makes the device ready for use.
std::int64_t free_bytes(int device);

}  // namespace tutti::cuda
