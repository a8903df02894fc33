#include "arguments.hpp"

#include "tutti/base/error.hpp"

#include <fmt/format.h>

#include <algorithm>

namespace tutti {
namespace {

void require_space(const Tensor& values, MemorySpace space) {
  if (values.space == space) return;
  throw Error(ErrorSource::internal, "the values are not in the memory space of the communicator");
}

void require_length(const Tensor& values, const ReduceScatterGather& sum) {
  if (values.elements() == sum.bounds.back()) return;
  throw Error(ErrorSource::internal,
              fmt::format("the shards have {} elements, but the tensor has {}", sum.bounds.back(), values.elements()));
}

}  // namespace

void require_summable(const Tensor& values, MemorySpace space) {
  if (values.type != ElementType::f32 && values.type != ElementType::i64) {
    throw Error(ErrorSource::internal,
                fmt::format("only f32 and i64 values can be reduced, not {}", name_of(values.type)));
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

void require_valid_shards(const ReduceScatterGather& sum, int ranks, MemorySpace space) {
  const auto& bounds = sum.bounds;
  if (std::ssize(bounds) != ranks + 1 || bounds.front() != 0 || !std::ranges::is_sorted(bounds)) {
    throw Error(ErrorSource::internal, fmt::format("the shards of {} ranks need {} bounds that ascend from 0, not {}",
                                                   ranks, ranks + 1, fmt::join(bounds, ", ")));
  }
  if (!is_empty(sum.values)) {
    require_summable(sum.values, space);
    require_length(sum.values, sum);
  }
  if (!is_empty(sum.results)) {
    require_sendable(sum.results, space);
    require_length(sum.results, sum);
  }
}

Tensor subtensor(const Tensor& values, const ElementRange& range) {
  const auto offset = static_cast<std::size_t>(range.begin) * bytes_of(values.type);
  return {.data = static_cast<std::byte*>(values.data) + offset,
          .shape = {range.elements()},
          .type = values.type,
          .space = values.space};
}

}  // namespace tutti
