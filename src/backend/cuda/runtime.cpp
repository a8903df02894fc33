#include "backend/cuda/runtime.hpp"

#include "tutti/base/error.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstring>

namespace tutti::cuda {
namespace {

template <class T>
T* values_of(const Tensor& tensor, ElementType type) {
  if (tensor.space == MemorySpace::cuda && tensor.type == type) return static_cast<T*>(tensor.data);
  throw Error(
      ErrorSource::internal,
      fmt::format("the cuda backend got {} {} in {} memory, but needs {} in a GPU's", tensor.shape.text(),
                  name_of(tensor.type), tensor.space == MemorySpace::cuda ? "a GPU's" : "the host's", name_of(type)));
}

std::string version_text(int version) { return fmt::format("{}.{}", version / 1000, version % 1000 / 10); }

std::string cudnn_version_text() {
  int major = 0;
  int minor = 0;
  int patch = 0;
  check(cudnnGetProperty(MAJOR_VERSION, &major));
  check(cudnnGetProperty(MINOR_VERSION, &minor));
  check(cudnnGetProperty(PATCH_LEVEL, &patch));
  return fmt::format("{}.{}.{}", major, minor, patch);
}

std::string uuid_text(const cudaUUID_t& uuid) {
  std::string text = "GPU-";
  for (std::size_t i = 0; i < sizeof uuid.bytes; ++i) {
    if (i == 4 || i == 6 || i == 8 || i == 10) text += '-';
    text += fmt::format("{:02x}", static_cast<unsigned char>(uuid.bytes[i]));
  }
  return text;
}

CudaDevice describe(int device) {
  cudaDeviceProp properties{};
  check(cudaGetDeviceProperties(&properties, device));
  return {.name = properties.name,
          .uuid = uuid_text(properties.uuid),
          .memory_bytes = static_cast<std::int64_t>(properties.totalGlobalMem)};
}

// The errors that mean that the machine has no usable GPU, which is not a failure.
bool means_none(cudaError_t status) {
  return status == cudaErrorInsufficientDriver || status == cudaErrorStubLibrary || status == cudaErrorNoDevice;
}

}  // namespace

void check(cudaError_t status, std::source_location where) {
  if (status == cudaSuccess) return;
  static_cast<void>(cudaGetLastError());  // so that the next call does not report this failure again
  const char* const remedy = status == cudaErrorMemoryAllocation ? "; lower --batch-size" : "";
  throw Error(ErrorSource::cuda, fmt::format("{}: {}{}", cudaGetErrorName(status), cudaGetErrorString(status), remedy),
              where);
}

void check(cudnnStatus_t status, std::source_location where) {
  if (status == CUDNN_STATUS_SUCCESS) return;
  static_cast<void>(cudaGetLastError());  // so that the next launch does not report cuDNN's failure
  std::array<char, 1024> details{};
  cudnnGetLastErrorString(details.data(), details.size());
  throw Error(ErrorSource::cudnn, fmt::format("{}: {}", cudnnGetErrorString(status), details.data()), where);
}

float* device_f32(const Tensor& tensor) { return values_of<float>(tensor, ElementType::f32); }
double* device_f64(const Tensor& tensor) { return values_of<double>(tensor, ElementType::f64); }
std::int32_t* device_i32(const Tensor& tensor) { return values_of<std::int32_t>(tensor, ElementType::i32); }
std::int64_t* device_i64(const Tensor& tensor) { return values_of<std::int64_t>(tensor, ElementType::i64); }

CudaInventory query_devices() {
  int driver = 0;
  int runtime = 0;
  check(cudaDriverGetVersion(&driver));
  check(cudaRuntimeGetVersion(&runtime));
  CudaInventory inventory{.devices = {},
                          .unavailable_reason = {},
                          .driver_version = driver == 0 ? "no driver" : version_text(driver),
                          .runtime_version = version_text(runtime),
                          .cudnn_version = cudnn_version_text()};

  int count = 0;  // unchanged if there is no driver
  const cudaError_t status = cudaGetDeviceCount(&count);
  if (means_none(status)) {
    static_cast<void>(cudaGetLastError());
    inventory.unavailable_reason = driver == 0 ? "no driver" : cudaGetErrorString(status);
    if (driver != 0 && status == cudaErrorInsufficientDriver) {
      inventory.unavailable_reason +=
          fmt::format(" (CUDA {} against {})", inventory.driver_version, inventory.runtime_version);
    }
    return inventory;
  }
  check(status);
  for (int device = 0; device < count; ++device) inventory.devices.push_back(describe(device));
  if (count == 0) inventory.unavailable_reason = "no device is visible (CUDA_VISIBLE_DEVICES)";
  return inventory;
}

std::int64_t free_bytes(int device) {
  check(cudaSetDevice(device));
  std::size_t free = 0;
  std::size_t total = 0;
  check(cudaMemGetInfo(&free, &total));
  return static_cast<std::int64_t>(free);
}

}  // namespace tutti::cuda

namespace tutti {
namespace {

using cuda::check;

double mebibytes(std::size_t bytes) { return static_cast<double>(bytes) * 0x1p-20; }
double asked_for(std::size_t bytes) { return std::max(0.1, mebibytes(bytes)); }

Error no_room_on_device(int device, std::size_t bytes) {
  std::size_t free = 0;
  std::size_t total = 0;
  static_cast<void>(cudaMemGetInfo(&free, &total));
  return Error(ErrorSource::cuda,
               fmt::format("GPU {} has no room for {:.1f} MiB more, with {:.0f} of its {:.0f} MiB free: lower "
                           "--batch-size, or choose --precision bf16; nvidia-smi shows who else uses it",
                           device, asked_for(bytes), mebibytes(free), mebibytes(total)));
}

Error no_room_to_pin(std::size_t bytes) {
  return Error(ErrorSource::cuda, fmt::format("the host has no room to pin {:.1f} MiB: lower --batch-size, or start "
                                              "fewer ranks on this host",
                                              asked_for(bytes)));
}

bool is_short_of_memory(cudaError_t status) {
  if (status != cudaErrorMemoryAllocation) return false;
  static_cast<void>(cudaGetLastError());
  return true;
}

}  // namespace

Buffer allocate_cuda(int device, std::size_t bytes) {
  use_cuda_device(device);
  if (bytes == 0) return {nullptr, 0, MemorySpace::cuda, {}};
  void* data = nullptr;
  const cudaError_t status = cudaMalloc(&data, bytes);
  if (is_short_of_memory(status)) throw no_room_on_device(device, bytes);
  check(status);
  Buffer buffer(data, bytes, MemorySpace::cuda, [](void* block) { static_cast<void>(cudaFree(block)); });
  // Not cudaDeviceSynchronize(), which would also wait for collectives and thus for other ranks, and would invalidate
  // another thread's capture.
  const auto stream = make_cuda_stream(device);
  check(cudaMemsetAsync(data, 0, bytes, cuda::native(*stream)));
  stream->synchronize();
  return buffer;
}

Buffer allocate_pinned(int device, std::size_t bytes) {
  use_cuda_device(device);
  void* data = nullptr;
  const cudaError_t status = bytes == 0 ? cudaSuccess : cudaHostAlloc(&data, bytes, cudaHostAllocPortable);
  if (is_short_of_memory(status)) throw no_room_to_pin(bytes);
  check(status);
  Buffer buffer(data, bytes, MemorySpace::host, [](void* block) { static_cast<void>(cudaFreeHost(block)); });
  if (bytes > 0) std::memset(data, 0, bytes);
  return buffer;
}

}  // namespace tutti
