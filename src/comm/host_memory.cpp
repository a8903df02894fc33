#include "host_memory.hpp"

#include <cstring>
#include <new>

namespace tutti {
namespace {

constexpr std::align_val_t kAlignment{64};

}  // namespace

Buffer allocate_host_memory(std::size_t bytes) {
  Buffer memory(::operator new(bytes, kAlignment), bytes, MemorySpace::host,
                [](void* data) { ::operator delete(data, kAlignment); });
  std::memset(memory.data(), 0, bytes);
  return memory;
}

}  // namespace tutti
