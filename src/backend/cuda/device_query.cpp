#include "backend/cuda/device_query.hpp"

#include "backend/cuda/check.hpp"

#include <fmt/format.h>

#include <cstddef>

namespace tutti::cuda {
namespace {

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
          .memory_bytes = static_cast<std::int64_t>(properties.totalGlobalMem),
          .capability_major = properties.major,
          .capability_minor = properties.minor};
}

// On a machine without a GPU these are answers, not failures.
bool means_none(cudaError_t status) {
  return status == cudaErrorInsufficientDriver || status == cudaErrorStubLibrary || status == cudaErrorNoDevice;
}

}  // namespace

CudaInventory query_devices() {
  int driver = 0;
  int runtime = 0;
  check(cudaDriverGetVersion(&driver));
  check(cudaRuntimeGetVersion(&runtime));
  CudaInventory inventory{.devices = {},
                          .why_none = {},
                          .driver_version = driver == 0 ? "no driver" : version_text(driver),
                          .runtime_version = version_text(runtime),
                          .cudnn_version = cudnn_version_text()};

  int count = 0;  // stays as it is when there is no driver
  const cudaError_t status = cudaGetDeviceCount(&count);
  if (means_none(status)) {
    static_cast<void>(cudaGetLastError());
    inventory.why_none = driver == 0 ? "no driver" : cudaGetErrorString(status);
    if (driver != 0 && status == cudaErrorInsufficientDriver) {
      inventory.why_none += fmt::format(" (CUDA {} against {})", inventory.driver_version, inventory.runtime_version);
    }
    return inventory;
  }
  check(status);
  for (int device = 0; device < count; ++device) inventory.devices.push_back(describe(device));
  if (count == 0) inventory.why_none = "no device is visible (CUDA_VISIBLE_DEVICES)";
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
