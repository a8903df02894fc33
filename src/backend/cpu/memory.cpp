#include "backend/cpu/memory.hpp"

#include "tutti/base/error.hpp"

#include <fmt/format.h>
#include <sys/mman.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>

namespace tutti::cpu {
namespace {

constexpr std::size_t kLineBytes = 64;
constexpr std::size_t kHugePageBytes = std::size_t{2} << 20;

}  // namespace

Buffer allocate_host(std::size_t bytes) {
  const bool large = bytes >= 2 * kHugePageBytes;
  const std::size_t alignment = large ? kHugePageBytes : kLineBytes;
  // The least block is one line, so that an empty buffer still has an address of its own.
  const std::size_t whole = std::max<std::size_t>((bytes + alignment - 1) / alignment, 1) * alignment;
  void* data = whole < bytes ? nullptr : std::aligned_alloc(alignment, whole);
  if (data == nullptr) {
    throw Error(ErrorSource::internal, fmt::format("cannot allocate {} bytes of host memory; use a smaller batch, or "
                                                   "fewer ranks on this node",
                                                   bytes));
  }
  Buffer buffer(data, bytes, MemorySpace::host, [](void* block) { std::free(block); });
  // Advice only: where huge pages are off, small ones serve.
  if (large) static_cast<void>(madvise(data, whole, MADV_HUGEPAGE));
  std::memset(data, 0, whole);
  return buffer;
}

}  // namespace tutti::cpu
