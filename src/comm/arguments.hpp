#pragma once
// What communicators are given, checked alike by all of them.

#include "tutti/backend/tensor.hpp"
#include "tutti/comm/communicator.hpp"

#include <source_location>

namespace tutti {

// Throws unless `values` are f32 or i64 in this memory: what can be added over ranks there.
void require_summable(const Tensor& values, MemorySpace space,
                      std::source_location where = std::source_location::current());
// Throws unless `values` are of 4 or 8 bytes an element in this memory: what can be passed on there.
void require_passable(const Tensor& values, MemorySpace space,
                      std::source_location where = std::source_location::current());
void require_sharded(const ShardedSum& sum, int ranks, MemorySpace space,
                     std::source_location where = std::source_location::current());

inline bool is_empty(const Tensor& values) { return values.data == nullptr || values.elements() == 0; }

struct ElementRange {
  std::int64_t begin = 0;
  std::int64_t end = 0;
  std::int64_t elements() const { return end - begin; }
};

inline ElementRange shard_of(const ShardedSum& sum, int rank) {
  const auto at = static_cast<std::size_t>(rank);
  return {sum.bounds[at], sum.bounds[at + 1]};
}

// These elements as a vector of their own.
Tensor part_of(const Tensor& values, const ElementRange& range);

// Does the work on a piece of this rank's shard, unless it is empty.
inline void work_on(const ShardedSum& sum, const ElementRange& piece, Stream& stream) {
  if (sum.then && piece.elements() > 0) sum.then(stream, piece.begin, piece.end);
}

// Of memory that is ready when it is given away.
class HostStream final : public Stream {
 public:
  void synchronize() override {}
};

}  // namespace tutti
