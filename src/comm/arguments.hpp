#pragma once
// The arguments of collectives, for all communicators: their checks, shards and memory.

#include "tutti/backend/tensor.hpp"
#include "tutti/comm/communicator.hpp"

#include <array>
#include <cstddef>
#include <span>

namespace tutti {

// Throws unless `values` are f32, bf16, i32 or i64 in this memory, and so can be reduced.
void require_summable(const Tensor& values, MemorySpace space);
// Throws unless `values` have elements of 4 or 8 bytes in this memory, and so can be sent.
void require_sendable(const Tensor& values, MemorySpace space);
void require_valid_shards(const ReduceScatterGather& request, int ranks, MemorySpace space);

inline bool is_empty(const Tensor& values) { return values.data == nullptr || values.elements() == 0; }

inline IndexRange shard_of(const ReduceScatterGather& request, int rank) {
  const auto at = static_cast<std::size_t>(rank);
  return {request.bounds[at], request.bounds[at + 1]};
}

// Calls transform_shard on a piece of this rank's shard, unless the piece is empty.
inline void transform_piece(const ReduceScatterGather& request, IndexRange piece, Stream& stream) {
  if (request.transform_shard && piece.size() > 0) request.transform_shard(stream, piece.begin, piece.end);
}

// The memory of up to two tensors that an operation uses; borrowed.
using OperationMemory = std::array<std::span<const std::byte>, 2>;
OperationMemory memory_of(const Tensor& values, const Tensor& more = {});
bool overlap(const OperationMemory& one, const OperationMemory& other);

// A stream without pending work.
class IdleStream final : public Stream {
 public:
  void synchronize() override {}
};

}  // namespace tutti
