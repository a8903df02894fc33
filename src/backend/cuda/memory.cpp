#include "tutti/backend/cuda_stream.hpp"
#include "tutti/base/error.hpp"

#include "backend/cuda/check.hpp"
#include "backend/cuda/native.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

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
  // Waiting for the whole device would be waiting for the ranks that its sums wait for, and would spoil what another
  // thread records.
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
