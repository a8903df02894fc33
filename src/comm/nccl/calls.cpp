#include "calls.hpp"

#include "../arguments.hpp"

#include <algorithm>
#include <cstddef>

namespace tutti::nccl {
namespace {

// In reduce_to_root, rank 0 receives pieces of this size from this many ranks at a time, which bounds its scratch
// memory.
constexpr std::int64_t kPieceBytes = std::int64_t{8} << 20;
constexpr int kRanksAtOnce = 2;

ncclDataType_t type_of(const Tensor& values) {
  switch (values.type) {
    case ElementType::f32:
      return ncclFloat32;
    case ElementType::bf16:
      return ncclBfloat16;
    case ElementType::i32:
      return ncclInt32;
    case ElementType::f64:
      return ncclFloat64;
    case ElementType::u8:
      return ncclUint8;
    case ElementType::i64:
      break;
  }
  return ncclInt64;
}

std::uint64_t bytes_outside(const IndexRange& shard, const Tensor& values) {
  return values.bytes() - elements_of(values, shard).bytes();
}

// The number of elements of each shard if one NCCL call can handle all shards, except a remainder of the last one; else
// 0.
std::int64_t equal_count(const std::vector<std::int64_t>& bounds) {
  const std::int64_t count = bounds[1];
  for (std::size_t rank = 0; rank + 1 < bounds.size(); ++rank) {
    if (bounds[rank] != static_cast<std::int64_t>(rank) * count) return 0;
  }
  return bounds.back() - bounds[bounds.size() - 2] < count ? 0 : count;
}

}  // namespace

template <class CallForAll, class CallForOne>
void NcclCalls::call_for_shards(const std::vector<std::int64_t>& bounds, const Tensor& tensor,
                                const CallForAll& call_for_all, const CallForOne& call_for_one) const {
  Group group;
  const std::int64_t count = equal_count(bounds);
  if (count > 0) {
    void* const mine = elements_of(tensor, {count * connection.rank(), tensor.elements()}).data;
    group.add(call_for_all(tensor.data, mine, static_cast<std::size_t>(count)));
  }
  for (int rank = count > 0 ? connection.size() - 1 : 0; rank < connection.size(); ++rank) {
    const auto at = static_cast<std::size_t>(rank);
    const IndexRange shard{count > 0 ? connection.size() * count : bounds[at], bounds[at + 1]};
    if (shard.size() == 0) continue;
    group.add(call_for_one(elements_of(tensor, shard).data, static_cast<std::size_t>(shard.size()), rank));
  }
  require(group.end());
}

void NcclCalls::add_other_ranks(const Tensor& piece) const {
  constexpr std::size_t kAlignment = 64;
  const std::size_t stride = (piece.bytes() + kAlignment - 1) / kAlignment * kAlignment;
  const int at_once = std::min(kRanksAtOnce, connection.size() - 1);
  auto* const received = static_cast<std::byte*>(stream.scratch(stride * static_cast<std::size_t>(at_once)));
  for (int first = 1; first < connection.size(); first += at_once) {
    std::vector<Tensor> addends;
    Group group;
    for (int rank = first; rank < std::min(first + at_once, connection.size()); ++rank) {
      addends.push_back({received + stride * addends.size(), piece.shape, piece.type, piece.space});
      group.add(ncclRecv(addends.back().data, static_cast<std::size_t>(piece.elements()), ncclFloat32, rank,
                         connection.native(), native()));
    }
    require(group.end());
    for (const Tensor& addend : addends) add_on_cuda(stream, piece, addend);
  }
}

std::uint64_t NcclCalls::all_reduce(const Tensor& values) const {
  require(ncclAllReduce(values.data, values.data, static_cast<std::size_t>(values.elements()), type_of(values), ncclSum,
                        connection.native(), native()));
  return 2 * static_cast<std::uint64_t>(connection.size() - 1) * values.bytes() /
         static_cast<std::uint64_t>(connection.size());
}

std::uint64_t NcclCalls::reduce_scatter_gather(const ReduceScatterGather& request) const {
  const int rank = connection.rank();
  std::uint64_t bytes = 0;
  if (!is_empty(request.values)) {
    const ncclDataType_t type = type_of(request.values);
    const auto reduce_scatter = [&](void* all, void* mine, std::size_t count) {
      return ncclReduceScatter(all, mine, count, type, ncclSum, connection.native(), native());
    };
    const auto reduce = [&](void* shard, std::size_t count, int owner) {
      return ncclReduce(shard, shard, count, type, ncclSum, owner, connection.native(), native());
    };
    call_for_shards(request.bounds, request.values, reduce_scatter, reduce);
    bytes += bytes_outside(shard_of(request, rank), request.values);
  }
  transform_piece(request, shard_of(request, rank), stream);
  if (!is_empty(request.results)) {
    const ncclDataType_t type = type_of(request.results);
    const auto all_gather = [&](void* all, void* mine, std::size_t count) {
      return ncclAllGather(mine, all, count, type, connection.native(), native());
    };
    const auto broadcast = [&](void* shard, std::size_t count, int owner) {
      return ncclBroadcast(shard, shard, count, type, owner, connection.native(), native());
    };
    call_for_shards(request.bounds, request.results, all_gather, broadcast);
    bytes += bytes_outside(shard_of(request, (rank + 1) % connection.size()), request.results);
  }
  return bytes;
}

std::uint64_t NcclCalls::reduce_to_root(const Tensor& values) const {
  const std::int64_t elements = values.elements();
  const std::int64_t longest = std::min<std::int64_t>(elements, kPieceBytes / std::int64_t{sizeof(float)});
  for (std::int64_t begin = 0; begin < elements; begin += longest) {
    const Tensor piece = elements_of(values, {begin, std::min(begin + longest, elements)});
    if (connection.rank() == 0) {
      add_other_ranks(piece);
    } else {
      require(ncclSend(piece.data, static_cast<std::size_t>(piece.elements()), ncclFloat32, 0, connection.native(),
                       native()));
    }
  }
  return connection.rank() == 0 ? 0 : values.bytes();
}

std::uint64_t NcclCalls::broadcast(const Tensor& values) const {
  const auto count = static_cast<std::size_t>(values.elements());
  const ncclDataType_t type = type_of(values);
  if (connection.rank() != 0) {
    require(ncclRecv(values.data, count, type, 0, connection.native(), native()));
    return 0;
  }
  Group group;
  for (int rank = 1; rank < connection.size(); ++rank) {
    group.add(ncclSend(values.data, count, type, rank, connection.native(), native()));
  }
  require(group.end());
  return static_cast<std::uint64_t>(connection.size() - 1) * values.bytes();
}

}  // namespace tutti::nccl
