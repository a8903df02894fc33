#include "arguments.hpp"

#include "tutti/base/error.hpp"

#include <fmt/format.h>

#include <algorithm>

namespace tutti {
namespace {

void require_space(const Tensor& values, MemorySpace space) {
  if (values.space == space) return;
  throw Error(ErrorSource::internal, "a communicator is given values in memory that it does not work in");
}

void require_length(const Tensor& values, const ShardedSum& sum) {
  if (values.elements() == sum.bounds.back()) return;
  throw Error(ErrorSource::internal,
              fmt::format("shards of {} elements are made of a tensor of {}", sum.bounds.back(), values.elements()));
}

}  // namespace

void require_summable(const Tensor& values, MemorySpace space) {
  if (values.type != ElementType::f32 && values.type != ElementType::i64) {
    throw Error(ErrorSource::internal,
                fmt::format("sums over ranks are made of f32 or i64 values, not of {}", name_of(values.type)));
  }
  require_space(values, space);
}

void require_passable(const Tensor& values, MemorySpace space) {
  if (bytes_of(values.type) != 4 && bytes_of(values.type) != 8) {
    throw Error(ErrorSource::internal,
                fmt::format("ranks pass on elements of 4 or 8 bytes, not {}", name_of(values.type)));
  }
  require_space(values, space);
}

void require_sharded(const ShardedSum& sum, int ranks, MemorySpace space) {
  const auto& bounds = sum.bounds;
  if (std::ssize(bounds) != ranks + 1 || bounds.front() != 0 || !std::ranges::is_sorted(bounds)) {
    throw Error(ErrorSource::internal, fmt::format("the shards of {} ranks take {} bounds that ascend from 0, not {}",
                                                   ranks, ranks + 1, fmt::join(bounds, ", ")));
  }
  if (!is_empty(sum.values)) {
    require_summable(sum.values, space);
    require_length(sum.values, sum);
  }
  if (!is_empty(sum.results)) {
    require_passable(sum.results, space);
    require_length(sum.results, sum);
  }
}

Tensor part_of(const Tensor& values, const ElementRange& range) {
  const auto offset = static_cast<std::size_t>(range.begin) * bytes_of(values.type);
  return {.data = static_cast<std::byte*>(values.data) + offset,
          .shape = {range.elements()},
          .type = values.type,
          .space = values.space};
}

}  // namespace tutti
