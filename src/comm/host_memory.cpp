#include "host_memory.hpp"

#include "tutti/base/error.hpp"

#include <fmt/format.h>

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

void require_summable(const Tensor& values, MemorySpace space, std::source_location where) {
  if (values.type != ElementType::f32 && values.type != ElementType::i64) {
    throw Error(ErrorSource::internal,
                fmt::format("sums over ranks are made of f32 or i64 values, not of {}", name_of(values.type)), where);
  }
  if (values.space != space) {
    throw Error(ErrorSource::internal, "a communicator is given values in memory that it does not add in", where);
  }
}

}  // namespace tutti
