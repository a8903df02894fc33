#include "tutti/backend/host_memory.hpp"

#include "tutti/base/error.hpp"

#include <fmt/format.h>
#include <sys/mman.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <cstring>

namespace tutti {
namespace {

constexpr std::size_t kLineBytes = 64;
constexpr std::size_t kHugePageBytes = std::size_t{2} << 20;

[[noreturn]] void refuse(std::size_t bytes) {
  throw Error(ErrorSource::input,
              fmt::format("cannot allocate {} bytes of host memory; use a smaller network or batch, "
                          "or fewer ranks on this node",
                          bytes));
}

// Pages that the system clears when they are first written: clearing them here as well would double the work.
Buffer allocate_pages(std::size_t bytes) {
  const std::size_t reserved = bytes + kHugePageBytes;
  if (reserved < bytes) refuse(bytes);
  void* const pages = mmap(nullptr, reserved, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (pages == MAP_FAILED) refuse(bytes);
  auto* const begin = static_cast<std::byte*>(pages);
  const std::size_t beyond = reinterpret_cast<std::uintptr_t>(begin) % kHugePageBytes;
  std::byte* const data = begin + (beyond == 0 ? 0 : kHugePageBytes - beyond);
  Buffer buffer(data, bytes, MemorySpace::host, [pages, reserved](void*) { munmap(pages, reserved); });
  // Advice only: where huge pages are off, small ones serve. What is left at the end is for small ones.
  static_cast<void>(madvise(data, bytes / kHugePageBytes * kHugePageBytes, MADV_HUGEPAGE));
  return buffer;
}

}  // namespace

Buffer allocate_host(std::size_t bytes) {
  if (bytes >= 2 * kHugePageBytes) return allocate_pages(bytes);
  // The least block is one line, so that an empty buffer still has an address of its own.
  const std::size_t whole = std::max<std::size_t>((bytes + kLineBytes - 1) / kLineBytes, 1) * kLineBytes;
  void* const data = std::aligned_alloc(kLineBytes, whole);
  if (data == nullptr) refuse(bytes);
  std::memset(data, 0, whole);
  return Buffer(data, bytes, MemorySpace::host, [](void* block) { std::free(block); });
}

}  // namespace tutti
