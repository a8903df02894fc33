#include "collectives.hpp"

#include <fmt/format.h>

#include <algorithm>

namespace tutti::nccl {
namespace {

// What rank 0 receives of a rank at a time, and of how many ranks: all of it lies in its memory.
constexpr std::int64_t kPieceBytes = std::int64_t{8} << 20;
constexpr int kRanksAtOnce = 4;

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

void* at(const Tensor& values, std::int64_t element) {
  return static_cast<std::byte*>(values.data) + static_cast<std::size_t>(element) * bytes_of(values.type);
}

// What each rank of a ring sends when every rank receives its share, or passes it on to all.
std::uint64_t ring_bytes(const Tensor& values, int ranks) {
  return static_cast<std::uint64_t>(ranks - 1) * values.bytes() / static_cast<std::uint64_t>(ranks);
}

// Shares that NCCL takes in one call, as far as they are equal; the last may have fewer elements more than there are
// ranks.
bool are_equal(const std::vector<std::int64_t>& bounds) {
  const auto ranks = std::ssize(bounds) - 1;
  for (std::ptrdiff_t rank = 0; rank < ranks; ++rank) {
    if (bounds[static_cast<std::size_t>(rank)] != rank * (bounds.back() / ranks)) return false;
  }
  return true;
}

struct Share {
  std::int64_t begin;
  std::int64_t count;
  int rank;
};

// Those that calls of one rank's own are needed for: the rest of equal shares, or all.
std::vector<Share> single_shares(const std::vector<std::int64_t>& bounds) {
  const int ranks = static_cast<int>(bounds.size()) - 1;
  if (are_equal(bounds)) {
    const std::int64_t rest = bounds.back() % ranks;
    return rest == 0 ? std::vector<Share>{} : std::vector<Share>{{bounds.back() - rest, rest, ranks - 1}};
  }
  std::vector<Share> shares;
  for (std::size_t rank = 0; rank + 1 < bounds.size(); ++rank) {
    const std::int64_t count = bounds[rank + 1] - bounds[rank];
    if (count > 0) shares.push_back({bounds[rank], count, static_cast<int>(rank)});
  }
  return shares;
}

// Of what one call takes; 0: nothing.
std::size_t equal_count(const std::vector<std::int64_t>& bounds) {
  return are_equal(bounds) ? static_cast<std::size_t>(bounds.back() / (std::ssize(bounds) - 1)) : 0;
}

}  // namespace

void require(const Tensor& values, std::initializer_list<ElementType> types) {
  if (std::ranges::find(types, values.type) == types.end()) {
    throw Error(ErrorSource::internal, fmt::format("exchanges of {} are not provided for", name_of(values.type)));
  }
  if (values.space != MemorySpace::cuda) throw Error(ErrorSource::internal, "NCCL is given memory of the host");
}

void require_shares(const SharedSum& sum, int ranks) {
  const std::vector<std::int64_t>& bounds = sum.bounds;
  if (std::ssize(bounds) != ranks + 1 || bounds.front() != 0 || !std::ranges::is_sorted(bounds)) {
    throw Error(ErrorSource::internal,
                fmt::format("{} ranks are given {} bounds of shares, or no ascending ones", ranks, bounds.size()));
  }
  if (sum.values.data != nullptr) require(sum.values, kSummable);
  if (sum.results.data != nullptr) require(sum.results, kSendable);
  for (const Tensor& tensor : {sum.values, sum.results}) {
    if (tensor.data == nullptr || tensor.elements() == bounds.back()) continue;
    throw Error(ErrorSource::internal, fmt::format("the ranks' shares are of {} elements where there are {}",
                                                   bounds.back(), tensor.elements()));
  }
}

std::uint64_t Exchange::all_reduce_sum(const Tensor& values) const {
  connection.settle(ncclAllReduce(values.data, values.data, static_cast<std::size_t>(values.elements()),
                                  type_of(values), ncclSum, connection.native(), native()),
                    name);
  return 2 * static_cast<std::uint64_t>(connection.size() - 1) * values.bytes() /
         static_cast<std::uint64_t>(connection.size());
}

std::uint64_t Exchange::share(const SharedSum& sum) const {
  std::uint64_t bytes = 0;
  if (sum.values.data != nullptr) bytes += sum_shares(sum);
  const auto rank = static_cast<std::size_t>(connection.rank());
  if (sum.then && sum.bounds[rank] < sum.bounds[rank + 1]) sum.then(stream, sum.bounds[rank], sum.bounds[rank + 1]);
  if (sum.results.data != nullptr) bytes += spread_shares(sum);
  return bytes;
}

std::uint64_t Exchange::sum_shares(const SharedSum& sum) const {
  const Tensor& values = sum.values;
  const ncclDataType_t type = type_of(values);
  ncclComm_t const communicator = connection.native();
  Group group;
  if (const std::size_t count = equal_count(sum.bounds); count > 0) {
    void* const mine = at(values, static_cast<std::int64_t>(count) * connection.rank());
    group.add(ncclReduceScatter(values.data, mine, count, type, ncclSum, communicator, native()));
  }
  for (const Share& share : single_shares(sum.bounds)) {
    void* const theirs = at(values, share.begin);
    group.add(ncclReduce(theirs, theirs, static_cast<std::size_t>(share.count), type, ncclSum, share.rank, communicator,
                         native()));
  }
  connection.settle(group.end(), name);
  return ring_bytes(values, connection.size());
}

std::uint64_t Exchange::spread_shares(const SharedSum& sum) const {
  const Tensor& results = sum.results;
  const ncclDataType_t type = type_of(results);
  ncclComm_t const communicator = connection.native();
  Group group;
  if (const std::size_t count = equal_count(sum.bounds); count > 0) {
    void* const mine = at(results, static_cast<std::int64_t>(count) * connection.rank());
    group.add(ncclAllGather(mine, results.data, count, type, communicator, native()));
  }
  for (const Share& share : single_shares(sum.bounds)) {
    void* const theirs = at(results, share.begin);
    group.add(
        ncclBroadcast(theirs, theirs, static_cast<std::size_t>(share.count), type, share.rank, communicator, native()));
  }
  connection.settle(group.end(), name);
  return ring_bytes(results, connection.size());
}

std::uint64_t Exchange::sum_at_first(const Tensor& values) const {
  const std::int64_t elements = values.elements();
  const std::int64_t longest = std::min<std::int64_t>(elements, kPieceBytes / static_cast<std::int64_t>(sizeof(float)));
  for (std::int64_t begin = 0; begin < elements; begin += longest) {
    const Tensor piece{at(values, begin), {std::min(longest, elements - begin)}, values.type, values.space};
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

std::uint64_t Exchange::spread_from_first(const Tensor& values) const {
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
