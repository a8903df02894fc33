// CUDA's memory calls. Device memory is host memory between guards, which are checked when it is freed, and initially
// filled with NaN.

#include "standin/finding.hpp"
#include "standin/runtime.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <new>
#include <utility>

// Null except under the address sanitizer.
extern "C" {
[[gnu::weak]] void __asan_poison_memory_region(const volatile void* first, std::size_t bytes);
[[gnu::weak]] void __asan_unpoison_memory_region(const volatile void* first, std::size_t bytes);
}

using namespace tutti::standin;

namespace tutti::standin {
namespace {

constexpr std::size_t kGuard = 256;
constexpr std::size_t kPage = 4096;
constexpr unsigned char kGuardByte = 0xA5;
constexpr int kUnwritten = 0xFF;

cudaError_t allocate(void** data, std::size_t bytes, bool on_device) {
  const Lock lock;
  if (const cudaError_t status = refuse_while_capturing(); status != cudaSuccess) return fail(status);
  reveal_device_memory();
  *data = nullptr;
  if (bytes == 0) return cudaSuccess;
  if (on_device) {
    std::size_t free_bytes = 0;
    std::size_t total_bytes = 0;
    static_cast<void>(cudaMemGetInfo(&free_bytes, &total_bytes));
    if (bytes > free_bytes) return fail(cudaErrorMemoryAllocation);
  }
  const std::size_t block_bytes = (bytes + 2 * kGuard + kPage - 1) / kPage * kPage;
  auto* const block = static_cast<unsigned char*>(::operator new (block_bytes, std::align_val_t{kPage}));
  std::memset(block, kGuardByte, kGuard);
  std::memset(block + kGuard, kUnwritten, bytes);
  std::memset(block + kGuard + bytes, kGuardByte, kGuard);
  if (__asan_poison_memory_region != nullptr) {
    __asan_poison_memory_region(block, kGuard);
    __asan_poison_memory_region(block + kGuard + bytes, kGuard);
  }
  *data = block + kGuard;
  runtime().allocations[reinterpret_cast<std::uintptr_t>(*data)] = {
      .bytes = bytes, .on_device = on_device, .device = current_device(), .block = block, .block_bytes = block_bytes};
  return cudaSuccess;
}

// Waits for all work, as CUDA does.
cudaError_t release(void* data, bool on_device) {
  Lock lock;
  if (const cudaError_t status = refuse_while_capturing(); status != cudaSuccess) return fail(status);
  if (data == nullptr) return cudaSuccess;
  const auto found = runtime().allocations.find(reinterpret_cast<std::uintptr_t>(data));
  if (found == runtime().allocations.end() || found->second.on_device != on_device) return fail(cudaErrorInvalidValue);
  run_everything(lock);
  reveal_device_memory();
  const Allocation allocation = found->second;
  runtime().allocations.erase(found);
  auto* const block = static_cast<unsigned char*>(allocation.block);
  if (__asan_unpoison_memory_region != nullptr) {
    __asan_unpoison_memory_region(block, allocation.bytes + 2 * kGuard);
  }
  const auto is_guard = [](unsigned char byte) { return byte == kGuardByte; };
  const bool whole = std::all_of(block, block + kGuard, is_guard) &&
                     std::all_of(block + kGuard + allocation.bytes, block + 2 * kGuard + allocation.bytes, is_guard);
  std::memset(block, kUnwritten, allocation.bytes + 2 * kGuard);
  ::operator delete (block, std::align_val_t{kPage});
  if (!whole) throw Finding(fmt::format("something wrote outside of {} bytes of CUDA memory", allocation.bytes));
  return cudaSuccess;
}

enum class Space { pageable, pinned, device, wrong };

// `wrong` if the bytes extend beyond the allocation.
Space space_of(const void* data, std::size_t bytes) {
  const auto* const found = find_allocation(data);
  if (found == nullptr) return Space::pageable;
  const auto place = reinterpret_cast<std::uintptr_t>(data);
  if (place + bytes > found->first + found->second.bytes) return Space::wrong;
  return found->second.on_device ? Space::device : Space::pinned;
}

void refuse_freed(const void* data, std::size_t bytes, Space then) {
  if (space_of(data, bytes) != then) throw Finding("an enqueued copy runs after its memory was freed");
}

cudaError_t copy(void* to, const void* from, std::size_t bytes, cudaMemcpyKind kind, CUstream_st& stream, Lock& lock,
                 bool synchronous) {
  if (bytes == 0) return cudaSuccess;
  const Space target = space_of(to, bytes);
  const Space source = space_of(from, bytes);
  if (target == Space::wrong || source == Space::wrong) return cudaErrorInvalidValue;
  const bool to_device = target == Space::device;
  const bool from_device = source == Space::device;
  constexpr std::pair<bool, bool> kDevices[] = {{false, false}, {true, false}, {false, true}, {true, true}};
  if (kind != cudaMemcpyDefault && kDevices[kind] != std::pair(to_device, from_device)) return cudaErrorInvalidValue;

  std::shared_ptr<std::vector<std::byte>> staged;
  if (source == Space::pageable && to_device && !stream.capture) {
    const auto* const first = static_cast<const std::byte*>(from);
    staged = std::make_shared<std::vector<std::byte>>(first, first + bytes);
  }
  const cudaError_t status = enqueue(stream, "copy", [=] {
    refuse_freed(to, bytes, target);
    if (!staged) refuse_freed(from, bytes, source);
    std::memmove(to, staged ? staged->data() : from, bytes);
  });
  if (status != cudaSuccess) return status;
  // Between memory of the host, and to the host's pageable memory, the call returns when the copy is done.
  const bool waits =
      (!to_device && !from_device) || target == Space::pageable || (synchronous && to_device != from_device);
  if (waits && !stream.capture) run_until(lock, Point(stream.tail));
  return cudaSuccess;
}

cudaError_t set_bytes(void* to, int value, std::size_t bytes, CUstream_st& stream) {
  if (bytes == 0) return cudaSuccess;
  const Space target = space_of(to, bytes);
  if (target != Space::device && target != Space::pinned) return cudaErrorInvalidValue;
  return enqueue(stream, "memset", [=] {
    refuse_freed(to, bytes, target);
    std::memset(to, value, bytes);
  });
}

}  // namespace
}  // namespace tutti::standin

extern "C" {

cudaError_t cudaMalloc(void** data, std::size_t bytes) { return allocate(data, bytes, true); }
cudaError_t cudaFree(void* data) { return release(data, true); }
cudaError_t cudaHostAlloc(void** data, std::size_t bytes, unsigned) { return allocate(data, bytes, false); }
cudaError_t cudaMallocHost(void** data, std::size_t bytes) { return allocate(data, bytes, false); }
cudaError_t cudaFreeHost(void* data) { return release(data, false); }

cudaError_t cudaPointerGetAttributes(cudaPointerAttributes* attributes, const void* data) {
  const Lock lock;
  *attributes = {};
  const auto* const found = find_allocation(data);
  if (found == nullptr) {
    attributes->type = cudaMemoryTypeUnregistered;
    attributes->device = cudaInvalidDeviceId;
    return cudaSuccess;
  }
  attributes->type = found->second.on_device ? cudaMemoryTypeDevice : cudaMemoryTypeHost;
  attributes->device = found->second.device;
  return cudaSuccess;
}

cudaError_t cudaMemcpyAsync(void* to, const void* from, std::size_t bytes, cudaMemcpyKind kind, cudaStream_t stream) {
  Lock lock;
  return fail(copy(to, from, bytes, kind, stream_of(stream), lock, false));
}
cudaError_t cudaMemcpy(void* to, const void* from, std::size_t bytes, cudaMemcpyKind kind) {
  Lock lock;
  if (const cudaError_t status = refuse_while_capturing(); status != cudaSuccess) return fail(status);
  return fail(copy(to, from, bytes, kind, runtime().default_stream, lock, true));
}
cudaError_t cudaMemsetAsync(void* to, int value, std::size_t bytes, cudaStream_t stream) {
  const Lock lock;
  return fail(set_bytes(to, value, bytes, stream_of(stream)));
}
cudaError_t cudaMemset(void* to, int value, std::size_t bytes) {
  const Lock lock;
  if (const cudaError_t status = refuse_while_capturing(); status != cudaSuccess) return fail(status);
  return fail(set_bytes(to, value, bytes, runtime().default_stream));
}

}  // extern "C"
