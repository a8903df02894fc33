#include "collectives.hpp"

#include "../arguments.hpp"

#include <algorithm>

namespace tutti::nccl {
namespace {

// What rank 0 receives of a rank at a time, and of how many ranks: all of it lies in its memory.
constexpr std::int64_t kPieceBytes = std::int64_t{8} << 20;
constexpr int kRanksAtOnce = 2;

ncclDataType_t type_of(const Tensor& values) {
  switch (values.type) {
    case ElementType::f32:
      return ncclFloat32;
    case ElementType::i32:
      return ncclInt32;
    case ElementType::f64:
      return ncclFloat64;
    default:
      return ncclInt64;
  }
}

std::uint64_t bytes_but(const ElementRange& shard, const Tensor& values) {
  return values.bytes() - part_of(values, shard).bytes();
}

// The elements of each shard where one call of NCCL can take all of them, except what the last has more of; else 0.
std::int64_t equal_count(const std::vector<std::int64_t>& bounds) {
  const std::int64_t count = bounds[1];
  for (std::size_t rank = 0; rank + 1 < bounds.size(); ++rank) {
    if (bounds[rank] != static_cast<std::int64_t>(rank) * count) return 0;
  }
  return bounds.back() - bounds[bounds.size() - 2] < count ? 0 : count;
}

struct SingleShard {
  int rank;
  ElementRange range;
};

// Those that calls of their own are needed for: what the last has more of, or all.
std::vector<SingleShard> single_shards(const ShardedSum& sum) {
  const int ranks = static_cast<int>(sum.bounds.size()) - 1;
  const std::int64_t count = equal_count(sum.bounds);
  if (count > 0) return {{ranks - 1, {ranks * count, sum.bounds.back()}}};
  std::vector<SingleShard> shards;
  for (int rank = 0; rank < ranks; ++rank) shards.push_back({rank, shard_of(sum, rank)});
  return shards;
}

}  // namespace

std::uint64_t Exchange::all_reduce(const Tensor& values) const {
  connection.settle(ncclAllReduce(values.data, values.data, static_cast<std::size_t>(values.elements()),
                                  type_of(values), ncclSum, connection.native(), native()),
                    name);
  return 2 * static_cast<std::uint64_t>(connection.size() - 1) * values.bytes() /
         static_cast<std::uint64_t>(connection.size());
}

std::uint64_t Exchange::reduce_scatter_gather(const ShardedSum& sum) const {
  std::uint64_t bytes = 0;
  if (!is_empty(sum.values)) bytes += reduce_scatter(sum);
  work_on(sum, shard_of(sum, connection.rank()), stream);
  if (!is_empty(sum.results)) bytes += all_gather(sum);
  return bytes;
}

std::uint64_t Exchange::reduce_scatter(const ShardedSum& sum) const {
  const Tensor& values = sum.values;
  const ncclDataType_t type = type_of(values);
  Group group;
  if (const std::int64_t count = equal_count(sum.bounds); count > 0) {
    void* const mine = part_of(values, {count * connection.rank(), values.elements()}).data;
    group.add(ncclReduceScatter(values.data, mine, static_cast<std::size_t>(count), type, ncclSum, connection.native(),
                                native()));
  }
  for (const SingleShard& shard : single_shards(sum)) {
    if (shard.range.elements() == 0) continue;
    void* const theirs = part_of(values, shard.range).data;
    group.add(ncclReduce(theirs, theirs, static_cast<std::size_t>(shard.range.elements()), type, ncclSum, shard.rank,
                         connection.native(), native()));
  }
  connection.settle(group.end(), name);
  return bytes_but(shard_of(sum, connection.rank()), values);
}

std::uint64_t Exchange::all_gather(const ShardedSum& sum) const {
  const Tensor& results = sum.results;
  const ncclDataType_t type = type_of(results);
  Group group;
  if (const std::int64_t count = equal_count(sum.bounds); count > 0) {
    void* const mine = part_of(results, {count * connection.rank(), results.elements()}).data;
    group.add(ncclAllGather(mine, results.data, static_cast<std::size_t>(count), type, connection.native(), native()));
  }
  for (const SingleShard& shard : single_shards(sum)) {
    if (shard.range.elements() == 0) continue;
    void* const theirs = part_of(results, shard.range).data;
    group.add(ncclBroadcast(theirs, theirs, static_cast<std::size_t>(shard.range.elements()), type, shard.rank,
                            connection.native(), native()));
  }
  connection.settle(group.end(), name);
  return bytes_but(shard_of(sum, (connection.rank() + 1) % connection.size()), results);
}

std::uint64_t Exchange::reduce_to_root(const Tensor& values) const {
  const std::int64_t elements = values.elements();
  const std::int64_t longest = std::min<std::int64_t>(elements, kPieceBytes / static_cast<std::int64_t>(sizeof(float)));
  for (std::int64_t begin = 0; begin < elements; begin += longest) {
    const Tensor piece = part_of(values, {begin, std::min(begin + longest, elements)});
    if (connection.rank() == 0) {
      add_other_ranks(piece);
    } else {
      connection.settle(ncclSend(piece.data, static_cast<std::size_t>(piece.elements()), ncclFloat32, 0,
                                 connection.native(), native()),
                        name);
    }
  }
  return connection.rank() == 0 ? 0 : values.bytes();
}

void Exchange::add_other_ranks(const Tensor& piece) const {
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
    connection.settle(group.end(), name);
    for (const Tensor& addend : addends) add_on_cuda(stream, piece, addend);
  }
}

std::uint64_t Exchange::broadcast(const Tensor& values) const {
  const auto count = static_cast<std::size_t>(values.elements());
  const ncclDataType_t type = type_of(values);
  if (connection.rank() != 0) {
    connection.settle(ncclRecv(values.data, count, type, 0, connection.native(), native()), name);
    return 0;
  }
  Group group;
  for (int rank = 1; rank < connection.size(); ++rank) {
    group.add(ncclSend(values.data, count, type, rank, connection.native(), native()));
  }
  connection.settle(group.end(), name);
  return static_cast<std::uint64_t>(connection.size() - 1) * values.bytes();
}

}  // namespace tutti::nccl
