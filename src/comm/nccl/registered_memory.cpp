#include "registered_memory.hpp"

#include "tutti/backend/cuda_stream.hpp"

#include <cuda_runtime_api.h>

#include <functional>
#include <map>
#include <mutex>

namespace tutti::nccl {

struct RegisteredMemory::Blocks {
  struct Block {
    std::size_t bytes = 0;
    bool is_registered = false;
    ncclWindow_t window = nullptr;  // null if NCCL has no use for it
  };

  void release(int device, void* data) {
    // NCCL unmaps memory without waiting for its users, unlike cudaFree. Any thread may release a block.
    static_cast<void>(cudaSetDevice(device));
    static_cast<void>(cudaDeviceSynchronize());
    const std::lock_guard lock(mutex);
    const auto block = blocks.find(static_cast<std::byte*>(data));
    if (communicator != nullptr && block->second.window != nullptr) {
      static_cast<void>(ncclCommWindowDeregister(communicator, block->second.window));
    }
    static_cast<void>(ncclMemFree(data));
    blocks.erase(block);
  }

  std::mutex mutex;
  ncclComm_t communicator = nullptr;  // null after detach()
  std::map<std::byte*, Block, std::less<>> blocks;
};

RegisteredMemory::RegisteredMemory(int device, const Connection& connection)
    : device_(device), connection_(connection), blocks_(std::make_shared<Blocks>()) {
  blocks_->communicator = connection.native();
}

Buffer RegisteredMemory::allocate(std::size_t bytes) {
  if (bytes == 0) return {nullptr, 0, MemorySpace::cuda, {}};
  use_cuda_device(device_);
  void* data = nullptr;
  if (const ncclResult_t result = ncclMemAlloc(&data, bytes); result != ncclSuccess) {
    allocate_cuda(device_, bytes);  // throws an error with details if there is too little memory
    check(result);
  }
  {
    const std::lock_guard lock(blocks_->mutex);
    blocks_->blocks.emplace(static_cast<std::byte*>(data), Blocks::Block{.bytes = bytes});
  }
  return adopt_cuda(device_, {static_cast<std::byte*>(data), bytes}, CudaMemory::tensors,
                    [blocks = blocks_, device = device_](void* block) { blocks->release(device, block); });
}

void RegisteredMemory::register_blocks(const OperationMemory& memory, const std::string& operation) {
  const std::lock_guard lock(blocks_->mutex);
  for (const auto& span : memory) {
    auto after = blocks_->blocks.upper_bound(span.data());
    if (span.empty() || after == blocks_->blocks.begin()) continue;
    auto& [data, block] = *--after;
    if (span.data() >= data + block.bytes || block.is_registered) continue;
    connection_.require_success(
        ncclCommWindowRegister(connection_.native(), data, block.bytes, &block.window, NCCL_WIN_COLL_SYMMETRIC),
        operation);
    block.is_registered = true;
  }
}

void RegisteredMemory::detach() noexcept {
  const std::lock_guard lock(blocks_->mutex);
  blocks_->communicator = nullptr;
}

}  // namespace tutti::nccl
