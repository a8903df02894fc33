#include "tutti/backend/cuda_stream.hpp"

#include "backend/cuda/check.hpp"

#include <cstring>

namespace tutti {

using cuda::check;

Buffer allocate_cuda(int device, std::size_t bytes) {
  use_cuda_device(device);
  void* data = nullptr;
  if (bytes > 0) check(cudaMalloc(&data, bytes));
  Buffer buffer(data, bytes, MemorySpace::cuda, [](void* block) { static_cast<void>(cudaFree(block)); });
  if (bytes > 0) check(cudaMemset(data, 0, bytes));
  // Our streams do not wait for the default one, on which the zeros are written. Nor does it wait for them, unlike the
  // device as a whole: another thread may be capturing, or a collective be held up by a peer that is gone.
  check(cudaStreamSynchronize(nullptr));
  return buffer;
}

Buffer allocate_pinned(int device, std::size_t bytes) {
  use_cuda_device(device);
  void* data = nullptr;
  if (bytes > 0) check(cudaHostAlloc(&data, bytes, cudaHostAllocPortable));
  Buffer buffer(data, bytes, MemorySpace::host, [](void* block) { static_cast<void>(cudaFreeHost(block)); });
  if (bytes > 0) std::memset(data, 0, bytes);
  return buffer;
}

}  // namespace tutti
