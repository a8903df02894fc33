#include "tutti/backend/growing_memory.hpp"

#include "tutti/base/error.hpp"

#include <fmt/format.h>
#include <sys/mman.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <optional>
#include <utility>

namespace tutti {
namespace {

constexpr std::size_t kMaxPageBytes = std::size_t{64} << 10;

// No mapping has a length of 0.
std::size_t mapped_bytes(std::size_t bytes) { return std::max<std::size_t>(1, bytes); }

std::byte* checked(void* mapped, std::size_t bytes) {
  if (mapped != MAP_FAILED) return static_cast<std::byte*>(mapped);
  throw Error(ErrorSource::input, fmt::format("cannot map {:.1f} MiB of host memory: {}; use fewer ranks on this node, "
                                              "or a smaller data set",
                                              static_cast<double>(bytes) / 0x1p20, std::strerror(errno)));
}

// Pages of a file, or of this process.
std::byte* map(std::size_t bytes, int file) {
  const int kind = file < 0 ? MAP_PRIVATE | MAP_ANONYMOUS : MAP_SHARED;
  return checked(::mmap(nullptr, mapped_bytes(bytes), PROT_READ | PROT_WRITE, kind, file, 0), bytes);
}

void unmap(void* data, std::size_t bytes) noexcept { ::munmap(data, mapped_bytes(bytes)); }

}  // namespace

GrowingMemory::GrowingMemory(Descriptor file, Allocate allocate)
    : file_(std::move(file)), allocate_(std::move(allocate)), in_file_(true) {}

GrowingMemory::GrowingMemory(GrowingMemory&& other) noexcept
    : file_(std::move(other.file_)),
      allocate_(std::move(other.allocate_)),
      data_(std::exchange(other.data_, nullptr)),
      bytes_(std::exchange(other.bytes_, 0)),
      in_file_(other.in_file_) {}

GrowingMemory::~GrowingMemory() {
  if (data_ != nullptr) unmap(data_, bytes_);
}

void GrowingMemory::resize(std::size_t bytes) {
  std::optional<Error> refusal;
  if (in_file_) {
    try {
      allocate_(file_.get(), bytes);
    } catch (const Error& error) {
      refusal = error;
    }
  }
  // Of a file, the kernel does this for the rest of the last page.
  if (bytes < bytes_ && !in_file_) std::memset(data_ + bytes, 0, std::min(bytes_ - bytes, kMaxPageBytes));
  try {
    if (refusal) move_to_pages_of(-1);  // and go on, so that take() can say how much is needed in all
    if (data_ == nullptr) {
      data_ = map(bytes, in_file_ ? file_.get() : -1);
    } else {
      data_ = checked(::mremap(data_, mapped_bytes(bytes_), mapped_bytes(bytes), MREMAP_MAYMOVE), bytes);
    }
  } catch (const Error&) {
    if (refusal) throw *refusal;
    throw;
  }
  bytes_ = bytes;
  // Only advice: small pages do as well.
  if (!in_file_) static_cast<void>(::madvise(data_, bytes, MADV_HUGEPAGE));
}

void GrowingMemory::move_to_pages_of(int file) {
  in_file_ = file >= 0;
  if (data_ != nullptr) {
    std::byte* const moved = map(bytes_, file);
    std::memcpy(moved, data_, bytes_);
    unmap(std::exchange(data_, moved), bytes_);
  }
  if (!in_file_) allocate_(file_.get(), 0);
}

Buffer GrowingMemory::take() {
  if (file_ && !in_file_) {
    allocate_(file_.get(), bytes_);
    move_to_pages_of(file_.get());
  }
  const std::size_t bytes = std::exchange(bytes_, 0);
  return {std::exchange(data_, nullptr), bytes, MemorySpace::host, [bytes](void* data) { unmap(data, bytes); }};
}

}  // namespace tutti
