// CUDA's device and version calls, and cuDNN's two version calls.

#include "tutti/base/process.hpp"

#include "standin/runtime.hpp"

#include <cudnn.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <sstream>
#include <string>

using namespace tutti::standin;

namespace tutti::standin {
namespace {

thread_local int used_device = 0;

constexpr int kMaxThreads = 1024;  // of a block
constexpr int kMaxThreadsOfMultiprocessor = 2048;
constexpr int kMaxBlocksOfMultiprocessor = 32;

int number_from(const char* variable, int otherwise) {
  const char* const text = std::getenv(variable);
  return text == nullptr ? otherwise : std::stoi(text);
}

int multiprocessors() { return number_from("TUTTI_STANDIN_MULTIPROCESSORS", 4); }
int major_version() { return number_from("TUTTI_STANDIN_MAJOR", 9); }
// Of the GPU of which this device is a MIG instance.
int bus_of(int device) { return 0xA0 + device / number_from("TUTTI_STANDIN_MIG", 1); }

// Parses CUDA_VISIBLE_DEVICES as CUDA does, up to the first invalid device. Read in each call, so that tests can set
// it.
std::vector<int> visible_devices() {
  const int count = number_from("TUTTI_STANDIN_DEVICES", 1);
  std::vector<int> visible;
  const char* const chosen = std::getenv("CUDA_VISIBLE_DEVICES");
  if (chosen == nullptr) {
    for (int device = 0; device < count; ++device) visible.push_back(device);
    return visible;
  }
  std::istringstream list(chosen);
  for (int device = 0; list >> device && device >= 0 && device < count; list.ignore(1)) visible.push_back(device);
  return visible;
}

}  // namespace

int current_device() { return used_device; }
int device_count() { return static_cast<int>(visible_devices().size()); }
bool loads_eagerly() {
  static const bool is_eager = [] {
    const char* const mode = std::getenv("CUDA_MODULE_LOADING");
    return mode != nullptr && std::strcmp(mode, "EAGER") == 0;
  }();
  return is_eager;
}
std::size_t device_memory_bytes() { return static_cast<std::size_t>(number_from("TUTTI_STANDIN_MEMORY", 8192)) << 20; }

}  // namespace tutti::standin

extern "C" {

cudaError_t cudaDriverGetVersion(int* version) {
  *version = CUDART_VERSION;
  return cudaSuccess;
}
cudaError_t cudaRuntimeGetVersion(int* version) {
  *version = CUDART_VERSION;
  return cudaSuccess;
}

cudaError_t cudaGetDeviceCount(int* count) {
  static_cast<void>(loads_eagerly());  // CUDA starts, and reads its variables
  if (const int error = number_from("TUTTI_STANDIN_START_ERROR", 0); error != 0) {
    return fail(static_cast<cudaError_t>(error));
  }
  *count = device_count();
  return *count == 0 ? fail(cudaErrorNoDevice) : cudaSuccess;
}
cudaError_t cudaSetDevice(int device) {
  if (device < 0 || device >= device_count()) return fail(cudaErrorInvalidDevice);
  used_device = device;
  return cudaSuccess;
}
cudaError_t cudaGetDevice(int* device) {
  *device = used_device;
  return cudaSuccess;
}

cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int device) {
  const std::vector<int> visible = visible_devices();
  if (device < 0 || device >= static_cast<int>(visible.size())) return fail(cudaErrorInvalidDevice);
  *properties = {};
  std::strcpy(properties->name, "Stand-in for a GPU");
  const int number = visible[static_cast<std::size_t>(device)];
  for (std::size_t i = 0; i < sizeof properties->uuid.bytes; ++i) properties->uuid.bytes[i] = static_cast<char>(i);
  properties->uuid.bytes[0] = static_cast<char>(number);
  const std::size_t host = std::hash<std::string>()(tutti::host_name());
  std::memcpy(properties->uuid.bytes + 8, &host, sizeof host);
  properties->pciBusID = bus_of(number);
  properties->totalGlobalMem = device_memory_bytes();
  properties->major = major_version();
  properties->multiProcessorCount = multiprocessors();
  properties->warpSize = 32;
  properties->maxThreadsPerBlock = kMaxThreads;
  return cudaSuccess;
}
cudaError_t cudaDeviceGetPCIBusId(char* text, int length, int device) {
  const std::vector<int> visible = visible_devices();
  if (device < 0 || device >= static_cast<int>(visible.size())) return fail(cudaErrorInvalidDevice);
  const int needed = std::snprintf(text, static_cast<std::size_t>(length), "0000:%02X:00.0",
                                   static_cast<unsigned>(bus_of(visible[static_cast<std::size_t>(device)])));
  return needed < length ? cudaSuccess : fail(cudaErrorInvalidValue);
}
// By threads alone: kernels of the host have no registers.
cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessor(int* blocks, const void*, int threads, std::size_t) {
  if (threads < 1 || threads > kMaxThreads) return fail(cudaErrorInvalidValue);
  *blocks = std::min(kMaxBlocksOfMultiprocessor, kMaxThreadsOfMultiprocessor / threads);
  return cudaSuccess;
}
cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr attribute, int device) {
  if (device < 0 || device >= device_count()) return fail(cudaErrorInvalidDevice);
  switch (attribute) {
    case cudaDevAttrMultiProcessorCount:
      *value = multiprocessors();
      return cudaSuccess;
    case cudaDevAttrComputeCapabilityMajor:
      *value = major_version();
      return cudaSuccess;
    case cudaDevAttrComputeCapabilityMinor:
      *value = 0;
      return cudaSuccess;
    case cudaDevAttrL2CacheSize:
      *value = 1 << 16;
      return cudaSuccess;
    case cudaDevAttrMaxThreadsPerMultiProcessor:
      *value = kMaxThreadsOfMultiprocessor;
      return cudaSuccess;
    default:
      return fail(cudaErrorInvalidValue);
  }
}

cudaError_t cudaDeviceGetStreamPriorityRange(int* least, int* greatest) {
  *least = 0;
  *greatest = -5;
  return cudaSuccess;
}

cudaError_t cudaMemGetInfo(std::size_t* free_bytes, std::size_t* total_bytes) {
  const Lock lock;
  std::size_t taken = 0;
  for (const auto& [place, allocation] : runtime().allocations) {
    if (allocation.on_device && allocation.device == current_device()) taken += allocation.bytes;
  }
  *total_bytes = device_memory_bytes();
  *free_bytes = *total_bytes - taken;
  return cudaSuccess;
}

cudnnStatus_t cudnnGetProperty(libraryPropertyType type, int* value) {
  *value = type == MAJOR_VERSION ? CUDNN_MAJOR : type == MINOR_VERSION ? CUDNN_MINOR : CUDNN_PATCHLEVEL;
  return CUDNN_STATUS_SUCCESS;
}
const char* cudnnGetErrorString(cudnnStatus_t) { return "reported by the stand-in for cuDNN"; }
void cudnnGetLastErrorString(char* message, std::size_t) { *message = '\0'; }

}  // extern "C"
