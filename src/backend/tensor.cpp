#include "tutti/backend/tensor.hpp"

#include "tutti/base/error.hpp"

#include <fmt/format.h>
#include <sys/mman.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <cstring>

namespace tutti {
namespace {

template <class T>
std::span<T> host_values(const Tensor& tensor, ElementType type) {
  if (tensor.type != type) {
    throw Error(ErrorSource::internal,
                fmt::format("a tensor of {} is read as {}", name_of(tensor.type), name_of(type)));
  }
  if (tensor.space != MemorySpace::host) {
    throw Error(ErrorSource::internal, "a tensor in device memory is read as the host's");
  }
  return {static_cast<T*>(tensor.data), static_cast<std::size_t>(tensor.elements())};
}

constexpr std::size_t kLineBytes = 64;
constexpr std::size_t kHugePageBytes = std::size_t{2} << 20;

[[noreturn]] void refuse(std::size_t bytes) {
  throw Error(ErrorSource::input,
              fmt::format("cannot allocate {} bytes of host memory; use a smaller network or batch, "
                          "or fewer ranks on this node",
                          bytes));
}

// The kernel zeroes pages when they are first written, so they are not zeroed here.
Buffer allocate_pages(std::size_t bytes) {
  const std::size_t reserved = bytes + kHugePageBytes;
  if (reserved < bytes) refuse(bytes);
  void* const pages = mmap(nullptr, reserved, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (pages == MAP_FAILED) refuse(bytes);
  auto* const begin = static_cast<std::byte*>(pages);
  const std::size_t beyond = reinterpret_cast<std::uintptr_t>(begin) % kHugePageBytes;
  std::byte* const data = begin + (beyond == 0 ? 0 : kHugePageBytes - beyond);
  Buffer buffer(data, bytes, MemorySpace::host, [pages, reserved](void*) { munmap(pages, reserved); });
  // Only advice: without huge pages, small ones are used, as for the rest at the end.
  static_cast<void>(madvise(data, bytes / kHugePageBytes * kHugePageBytes, MADV_HUGEPAGE));
  return buffer;
}

}  // namespace

Tensor elements_of(const Tensor& block, IndexRange range) {
  auto* const first =
      static_cast<std::byte*>(block.data) + range.begin * static_cast<std::int64_t>(bytes_of(block.type));
  return {first, Shape{range.size()}, block.type, block.space};
}

std::span<float> host_f32(const Tensor& tensor) { return host_values<float>(tensor, ElementType::f32); }
std::span<double> host_f64(const Tensor& tensor) { return host_values<double>(tensor, ElementType::f64); }
std::span<std::int32_t> host_i32(const Tensor& tensor) { return host_values<std::int32_t>(tensor, ElementType::i32); }
std::span<std::int64_t> host_i64(const Tensor& tensor) { return host_values<std::int64_t>(tensor, ElementType::i64); }

Tensor Buffer::view(const Shape& shape, ElementType type, std::size_t byte_offset) const {
  const Tensor tensor{static_cast<std::byte*>(data()) + byte_offset, shape, type, space_};
  if (byte_offset > bytes_ || tensor.bytes() > bytes_ - byte_offset) {
    throw Error(ErrorSource::internal, fmt::format("a view of {} bytes at {} does not fit a block of {} bytes",
                                                   tensor.bytes(), byte_offset, bytes_));
  }
  return tensor;
}

Buffer allocate_host(std::size_t bytes) {
  if (bytes >= 2 * kHugePageBytes) return allocate_pages(bytes);
  // The smallest block is one cache line, so that an empty buffer has a unique address.
  const std::size_t whole = std::max<std::size_t>((bytes + kLineBytes - 1) / kLineBytes, 1) * kLineBytes;
  void* const data = std::aligned_alloc(kLineBytes, whole);
  if (data == nullptr) refuse(bytes);
  std::memset(data, 0, whole);
  return Buffer(data, bytes, MemorySpace::host, [](void* block) { std::free(block); });
}

}  // namespace tutti
