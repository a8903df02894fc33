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

void require_summable(const Tensor& values, std::source_location where) {
  if (values.type != ElementType::f32 && values.type != ElementType::i64) {
    throw Error(ErrorSource::internal,
                fmt::format("sums over ranks are made of f32 or i64 values, not of {}", name_of(values.type)), where);
  }
}

void require_summable_on_host(const Tensor& values, std::source_location where) {
  require_summable(values, where);
  if (values.space != MemorySpace::host) {
    throw Error(ErrorSource::internal, "this communicator adds in host memory; sums in device memory want --comm nccl",
                where);
  }
}

}  // namespace tutti
