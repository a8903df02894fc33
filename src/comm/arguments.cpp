#include "arguments.hpp"

#include "tutti/base/error.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <functional>

namespace tutti {
namespace {

void require_space(const Tensor& values, MemorySpace space) {
  if (values.space == space) return;
  throw Error(ErrorSource::internal, "the values are not in the memory space of the communicator");
}

}  // namespace

void require_summable(const Tensor& values, MemorySpace space) {
  const bool is_integer = values.type == ElementType::i32 || values.type == ElementType::i64;
  if (!is_integer && values.type != ElementType::f32 && values.type != ElementType::bf16) {
    throw Error(ErrorSource::internal,
                fmt::format("only f32, bf16, i32 and i64 values can be reduced, not {}", name_of(values.type)));
  }
  require_space(values, space);
}

void require_sendable(const Tensor& values, MemorySpace space) {
  if (bytes_of(values.type) != 4 && bytes_of(values.type) != 8) {
    throw Error(ErrorSource::internal,
                fmt::format("only elements of 4 or 8 bytes can be sent, not {}", name_of(values.type)));
  }
  require_space(values, space);
}

void require_valid_shards(const ReduceScatterGather& request, int ranks, MemorySpace space) {
  const auto& bounds = request.bounds;
  if (std::ssize(bounds) != ranks + 1 || bounds.front() != 0 || !std::ranges::is_sorted(bounds)) {
    throw Error(ErrorSource::internal, fmt::format("the shards of {} ranks need {} bounds that ascend from 0, not {}",
                                                   ranks, ranks + 1, fmt::join(bounds, ", ")));
  }
  if (!is_empty(request.values)) require_summable(request.values, space);
  if (!is_empty(request.results)) require_sendable(request.results, space);
  for (const Tensor& tensor : {request.values, request.results}) {
    if (is_empty(tensor) || tensor.elements() == bounds.back()) continue;
    throw Error(ErrorSource::internal,
                fmt::format("the shards have {} elements, but the tensor has {}", bounds.back(), tensor.elements()));
  }
}

OperationMemory memory_of(const Tensor& values, const Tensor& more) {
  const auto memory = [](const Tensor& tensor) -> std::span<const std::byte> {
    if (is_empty(tensor)) return {};
    return {static_cast<const std::byte*>(tensor.data), tensor.bytes()};
  };
  return {memory(values), memory(more)};
}

bool overlap(const OperationMemory& one, const OperationMemory& other) {
  const std::less<const std::byte*> before;
  return std::ranges::any_of(one, [&](const auto& mine) {
    return std::ranges::any_of(other, [&](const auto& theirs) {
      return before(mine.data(), theirs.data() + theirs.size()) && before(theirs.data(), mine.data() + mine.size());
    });
  });
}

}  // namespace tutti
