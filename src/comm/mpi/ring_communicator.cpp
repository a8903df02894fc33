#include "ring_communicator.hpp"

#include "../arguments.hpp"
#include "check.hpp"
#include "native.hpp"
#include "ring_operation.hpp"
#include "star_operation.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <span>
#include <utility>

namespace tutti::mpi {
namespace {

// A long sum is cut into rings with chunks of this size at most, so that adding one overlaps receiving the
// next, and a chunk stays in the cache between the two.
constexpr std::int64_t kChunkBytes = std::int64_t{512} << 10;
// Rings that can be going at once are few; tags up to 32767 are every MPI library's.
constexpr std::int64_t kTags = 1024;
static_assert(static_cast<std::int64_t>(OperationQueue::kInFlight) < kTags);

// Into how many pieces of `chunks` chunks each a sum is cut.
std::int64_t pieces_of(std::int64_t elements, ElementType type, std::int64_t chunks = 1) {
  const std::int64_t longest = chunks * (kChunkBytes / static_cast<std::int64_t>(bytes_of(type)));
  return (elements + longest - 1) / longest;
}

ElementRange slice_of(const ElementRange& range, std::int64_t number, std::int64_t slices) {
  return {range.begin + range.elements() * number / slices, range.begin + range.elements() * (number + 1) / slices};
}

}  // namespace

RingCommunicator::RingCommunicator(MPI_Comm comm, bool helper_thread)
    : comm_(comm), helper_thread_(helper_thread), queue_(helper_thread) {
  check(MPI_Comm_rank(comm_, &rank_));
  check(MPI_Comm_size(comm_, &size_));
}

std::string RingCommunicator::description() const {
  return fmt::format("ring over {}{}", library_name(), helper_thread_ ? ", helper thread" : "");
}

void RingCommunicator::all_reduce_sum(const Tensor& values, Stream& stream) {
  require_summable(values, MemorySpace::host);
  stream.synchronize();
  if (size_ > 1 && !is_empty(values)) push_sum(values);
}

void RingCommunicator::share(const SharedSum& sum, Stream& stream) {
  require_share(sum, size_, MemorySpace::host);
  stream.synchronize();
  if (size_ == 1) {
    work_on(sum, share_of(sum, 0), stream);
  } else if (sum.bounds.back() > 0) {
    push_share(sum);
  }
}

void RingCommunicator::sum_at_first(const Tensor& values, Stream& stream) {
  require_summable(values, MemorySpace::host);
  stream.synchronize();
  if (size_ > 1 && !is_empty(values)) push_star(values, StarDirection::sum_at_first);
}

void RingCommunicator::spread_from_first(const Tensor& values, Stream& stream) {
  require_passable(values, MemorySpace::host);
  stream.synchronize();
  if (size_ > 1 && !is_empty(values)) push_star(values, StarDirection::spread_from_first);
}

void RingCommunicator::push(const Tensor& memory, const Tensor& more, Operations operations) {
  const auto bytes_of = [](const Tensor& tensor) {
    return std::span(static_cast<const std::byte*>(tensor.data), is_empty(tensor) ? 0 : tensor.bytes());
  };
  queue_.push({bytes_of(memory), bytes_of(more)}, std::move(operations));
}

void RingCommunicator::push_sum(const Tensor& values) {
  const std::int64_t ranks = size();
  const std::int64_t pieces = pieces_of(values.elements(), values.type, ranks);
  Operations operations;
  for (std::int64_t number = 0; number < pieces; ++number) {
    const ElementRange piece = slice_of({0, values.elements()}, number, pieces);
    RingWork work{.values = values, .results = values, .chunks = {}, .then = {}};
    for (std::int64_t chunk = 0; chunk < ranks; ++chunk) work.chunks.push_back(slice_of(piece, chunk, ranks));
    operations.push_back(std::make_unique<RingOperation>(place(), std::move(work), next_tag()));
  }
  push(values, {}, std::move(operations));
}

// Piece k of the sum is made of the k-th piece of every share.
void RingCommunicator::push_share(const SharedSum& sum) {
  const ElementType type = is_empty(sum.values) ? sum.results.type : sum.values.type;
  std::int64_t pieces = 1;
  for (int r = 0; r < size(); ++r) pieces = std::max(pieces, pieces_of(share_of(sum, r).elements(), type));
  Operations operations;
  for (std::int64_t piece = 0; piece < pieces; ++piece) {
    RingWork work{.values = sum.values, .results = sum.results, .chunks = {}, .then = {}};
    for (int chunk = 0; chunk < size(); ++chunk) {
      work.chunks.push_back(slice_of(share_of(sum, (chunk + size() - 1) % size()), piece, pieces));
    }
    if (sum.then) {
      work.then = [this, then = sum.then](const ElementRange& whole) { then(host_stream_, whole.begin, whole.end); };
    }
    operations.push_back(std::make_unique<RingOperation>(place(), std::move(work), next_tag()));
  }
  push(sum.values, sum.results, std::move(operations));
}

void RingCommunicator::push_star(const Tensor& values, StarDirection direction) {
  const std::int64_t pieces = pieces_of(values.elements(), values.type);
  Operations operations;
  for (std::int64_t piece = 0; piece < pieces; ++piece) {
    const Tensor part = part_of(values, slice_of({0, values.elements()}, piece, pieces));
    operations.push_back(std::make_unique<StarOperation>(place(), part, direction, next_tag()));
  }
  push(values, {}, std::move(operations));
}

int RingCommunicator::next_tag() { return static_cast<int>(next_tag_++ % kTags); }

}  // namespace tutti::mpi

namespace tutti {

std::unique_ptr<Communicator> make_mpi_ring_communicator(World& world, const RingOptions& options) {
  return std::make_unique<mpi::RingCommunicator>(mpi::duplicate_communicator(world), options.helper_thread);
}

}  // namespace tutti
