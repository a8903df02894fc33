#pragma once
// Checked CUDA calls, native streams, device pointers of tensors, and the devices that are visible to this process.

#include "tutti/backend/cuda_library.hpp"
#include "tutti/backend/cuda_stream.hpp"
#include "tutti/base/error.hpp"

#include <cuda_runtime_api.h>
#include <cudnn.h>

#include <cstdint>
#include <source_location>

namespace tutti::cuda {

void check(cudaError_t status, std::source_location where = std::source_location::current());
void check(cudnnStatus_t status, std::source_location where = std::source_location::current());

// Whether one of these calls failed.
bool is_of_gpu(const Error& error);

// For UniqueHandle: ignores the status that the release function returns.
template <auto kRelease>
struct ReleaseBy {
  void operator()(auto handle) const noexcept { static_cast<void>(kRelease(handle)); }
};

// The stream for CUDA calls and kernel launches.
inline cudaStream_t native(const CudaStream& stream) { return static_cast<cudaStream_t>(stream.native()); }

// The device pointer of a tensor. Throws an internal error if it is not in GPU memory or has another type.
float* device_f32(const Tensor& tensor);
std::uint16_t* device_bf16(const Tensor& tensor);
double* device_f64(const Tensor& tensor);
std::int32_t* device_i32(const Tensor& tensor);
std::int64_t* device_i64(const Tensor& tensor);

CudaInventory query_devices();
// The number of multiprocessors; a MIG instance has its own.
std::int64_t multiprocessors(int device);
// The free memory of a device. Creates the device's context.
std::int64_t free_bytes(int device);

}  // namespace tutti::cuda
