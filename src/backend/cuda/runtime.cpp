#include "backend/cuda/runtime.hpp"

#include "tutti/base/error.hpp"
#include "tutti/base/process.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cctype>
#include <cstddef>
#include <cstring>
#include <utility>

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

// CUDA prints upper case, the system lower case.
std::string pci_bus_id_of(int device) {
  std::array<char, 32> text{};
  check(cudaDeviceGetPCIBusId(text.data(), static_cast<int>(text.size()), device));
  std::ranges::transform(text, text.begin(), [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return text.data();
}

CudaDevice describe(int device) {
  cudaDeviceProp properties{};
  check(cudaGetDeviceProperties(&properties, device));
  return {.name = properties.name,
          .uuid = uuid_text(properties.uuid),
          .pci_bus_id = pci_bus_id_of(device),
          .memory_bytes = static_cast<std::int64_t>(properties.totalGlobalMem)};
}

// Why this build cannot use a device; empty if it can. Kernels are compiled for Ampere and later, which alone have bf16
// and tf32.
std::string reason_too_old(int device) {
  constexpr int kOldestMajor = 8;
  int major = 0;
  int minor = 0;
  check(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device));
  check(cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, device));
  if (major >= kOldestMajor) return {};
  return fmt::format(
      "{} (GPU {}) has compute capability {}.{}, and {}.0 (A100) or newer is needed; hide it by CUDA_VISIBLE_DEVICES "
      "if there are others",
      describe(device).name, device, major, minor, kOldestMajor);
}

// The errors of hardware and its services, which return until an administrator has acted. cudaErrorContained is younger
// than the oldest CUDA that this builds with.
bool is_of_hardware(cudaError_t status) {
  constexpr int kContained = 226;
  return status == cudaErrorECCUncorrectable || status == cudaErrorNvlinkUncorrectable ||
         static_cast<int>(status) == kContained || status == cudaErrorSystemNotReady ||
         status == cudaErrorExternalDevice;
}

std::string text_of(cudaError_t status) {
  const std::string text = fmt::format("{}: {}", cudaGetErrorName(status), cudaGetErrorString(status));
  if (!is_of_hardware(status)) return text;
  return fmt::format("{}: drain {}; the driver's Xid messages there name the cause (dmesg | grep Xid)", text,
                     host_name());
}

// The errors that mean that the machine has no usable GPU, which is not a failure.
bool means_none(cudaError_t status) {
  return status == cudaErrorInsufficientDriver || status == cudaErrorStubLibrary || status == cudaErrorNoDevice;
}

}  // namespace

void check(cudaError_t status, std::source_location where) {
  if (status == cudaSuccess) return;
  static_cast<void>(cudaGetLastError());  // so that the next call does not report this failure again
  if (status == cudaErrorMemoryAllocation) {
    throw Error(ErrorSource::gpu_memory, text_of(status) + "; lower --batch-size", where);
  }
  throw Error(ErrorSource::cuda, text_of(status), where);
}

void check(cudnnStatus_t status, std::source_location where) {
  if (status == CUDNN_STATUS_SUCCESS) return;
  const cudaError_t cause = cudaGetLastError();  // so that the next launch does not report cuDNN's failure
  if (is_of_hardware(cause)) throw Error(ErrorSource::cuda, text_of(cause), where);
  std::array<char, 1024> details{};
  cudnnGetLastErrorString(details.data(), details.size());
  throw Error(ErrorSource::cudnn, fmt::format("{}: {}", cudnnGetErrorString(status), details.data()), where);
}

bool is_of_gpu(const Error& error) {
  return error.source() == ErrorSource::cuda || error.source() == ErrorSource::cudnn;
}

float* device_f32(const Tensor& tensor) { return values_of<float>(tensor, ElementType::f32); }
std::uint16_t* device_bf16(const Tensor& tensor) { return values_of<std::uint16_t>(tensor, ElementType::bf16); }
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
                          .failed = false,
                          .driver_version = driver == 0 ? "no driver" : version_text(driver),
                          .runtime_version = version_text(runtime),
                          .cudnn_version = cudnn_version_text()};

  int count = 0;  // unchanged if there is no driver
  const cudaError_t status = cudaGetDeviceCount(&count);
  if (means_none(status)) {
    static_cast<void>(cudaGetLastError());
    inventory.unavailable_reason = driver == 0 ? "no driver" : cudaGetErrorString(status);
    if (driver != 0 && status == cudaErrorInsufficientDriver) {
      inventory.failed = true;
      inventory.unavailable_reason +=
          fmt::format(" (CUDA {} against {})", inventory.driver_version, inventory.runtime_version);
    }
    return inventory;
  }
  check(status);
  for (int device = 0; device < count; ++device) {
    const std::string reason = reason_too_old(device);
    if (inventory.devices.empty()) inventory.unavailable_reason = reason;
    if (!reason.empty()) return inventory;
    inventory.devices.push_back(describe(device));
  }
  if (count == 0) inventory.unavailable_reason = "no device is visible (CUDA_VISIBLE_DEVICES)";
  return inventory;
}

std::int64_t multiprocessors(int device) {
  int count = 0;
  check(cudaDeviceGetAttribute(&count, cudaDevAttrMultiProcessorCount, device));
  return count;
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

// Bytes that this process has allocated, by use.
std::array<std::atomic<std::size_t>, 3> allocated;
std::atomic<std::size_t>& allocated_for(CudaMemory use) { return allocated[static_cast<std::size_t>(use)]; }

Error no_room_on_device(int device, std::size_t bytes) {
  std::size_t free = 0;
  std::size_t total = 0;
  static_cast<void>(cudaMemGetInfo(&free, &total));
  return Error(ErrorSource::gpu_memory,
               fmt::format("GPU {} on {} has no room for {:.1f} MiB more, with {:.0f} of its {:.0f} MiB free: lower "
                           "--batch-size, or choose --precision bf16; nvidia-smi shows who else uses it; this process "
                           "has {:.0f} MiB of tensors there, {:.0f} MiB of scratch and {:.0f} MiB of data",
                           device, host_name(), asked_for(bytes), mebibytes(free), mebibytes(total),
                           mebibytes(allocated_for(CudaMemory::tensors)), mebibytes(allocated_for(CudaMemory::scratch)),
                           mebibytes(allocated_for(CudaMemory::images))));
}

Error no_room_to_pin(std::size_t bytes) {
  return Error(ErrorSource::input, fmt::format("the host has no room to pin {:.1f} MiB: lower --batch-size, or start "
                                               "fewer ranks on this host",
                                               asked_for(bytes)));
}

bool is_short_of_memory(cudaError_t status) {
  if (status != cudaErrorMemoryAllocation) return false;
  static_cast<void>(cudaGetLastError());
  return true;
}

}  // namespace

Buffer allocate_cuda(int device, std::size_t bytes, CudaMemory use) {
  use_cuda_device(device);
  if (bytes == 0) return {nullptr, 0, MemorySpace::cuda, {}};
  void* data = nullptr;
  const cudaError_t status = cudaMalloc(&data, bytes);
  if (is_short_of_memory(status)) throw no_room_on_device(device, bytes);
  check(status);
  return adopt_cuda(device, {static_cast<std::byte*>(data), bytes}, use,
                    [](void* block) { static_cast<void>(cudaFree(block)); });
}

Buffer adopt_cuda(int device, std::span<std::byte> memory, CudaMemory use, Buffer::Release release) {
  const std::size_t bytes = memory.size();
  allocated_for(use) += bytes;
  Buffer buffer(memory.data(), bytes, MemorySpace::cuda, [bytes, use, release = std::move(release)](void* block) {
    release(block);
    allocated_for(use) -= bytes;
  });
  // Not cudaDeviceSynchronize(), which would also wait for collectives and thus for other ranks, and would invalidate
  // another thread's capture.
  const auto stream = make_cuda_stream(device);
  check(cudaMemsetAsync(buffer.data(), 0, bytes, cuda::native(*stream)));
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
