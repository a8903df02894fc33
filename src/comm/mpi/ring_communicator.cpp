#include "tutti/base/error.hpp"
#include "tutti/base/timing.hpp"
#include "tutti/comm/communicator.hpp"

#include "../arguments.hpp"
#include "../window.hpp"
#include "native.hpp"
#include "operation_queue.hpp"
#include "sum_choice.hpp"
#include "sum_operations.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace tutti::mpi {
namespace {

// Rings that can be going at once are few; tags up to 32767 are every MPI library's.
constexpr std::int64_t kTags = 1024;
static_assert(static_cast<std::int64_t>(kSumsInFlight) < kTags);

constexpr int kMostDirect = 64;

// Into how many pieces of `chunks` chunks each a sum is cut. A chunk is a message: adding one overlaps receiving the
// next, and it stays in the cache between the two.
std::int64_t pieces_of(std::int64_t elements, ElementType type, std::int64_t chunks = 1) {
  const std::int64_t longest = chunks * (kLongestMessageBytes / static_cast<std::int64_t>(bytes_of(type)));
  return (elements + longest - 1) / longest;
}

ElementRange slice_of(const ElementRange& range, std::int64_t number, std::int64_t slices) {
  return {range.begin + range.elements() * number / slices, range.begin + range.elements() * (number + 1) / slices};
}

// Sums on values in host memory: in rings of MPI's point-to-point messages or in faster ways to the same bits, and in
// stars where a single server is asked for, all cut into operations that a queue drives.
class RingCommunicator : public Communicator {
 public:
  // Without a window (null) none is chosen. Collective.
  RingCommunicator(World& world, bool helper_thread, std::unique_ptr<Window> window, SumChoice choice);
  // Chooses by measuring. Collective.
  void choose(World& world);

  int rank() const override { return rank_; }
  int size() const override { return size_; }
  std::string description() const override;
  std::vector<SumThreshold> thresholds() const override { return choice_.thresholds(); }
  Buffer allocate(std::size_t bytes) override { return window_ ? window_->allocate(bytes) : allocate_host(bytes); }
  void all_reduce(const Tensor& values, Stream& stream) override;
  void reduce_scatter_gather(const ShardedSum& sum, Stream& stream) override;
  void reduce_to_root(const Tensor& values, Stream& stream) override;
  void broadcast(const Tensor& values, Stream& stream) override;
  bool progress() override { return queue_.progress(); }
  void finish(Stream&) override { queue_.finish(); }
  void abandon() noexcept override { queue_.abandon(); }
  std::uint64_t bytes_sent() const override { return bytes_sent_.load(std::memory_order_relaxed); }

 protected:
  RankPosition place() { return {.comm = comm_, .rank = rank_, .size = size_, .bytes_sent = bytes_sent_}; }
  // The second tensor may be empty.
  void push(const Tensor& memory, const Tensor& more, Operations operations);

 private:
  // For these, arguments are checked and not empty; there are two ranks at least.
  virtual void push_sum(const Tensor& values);
  void push_sharded(const ShardedSum& sum);
  void push_works(std::vector<SumWork> works);
  void push_star(const Tensor& values, StarDirection direction);
  SumAlgorithm algorithm_for(const SumWork& work) const;
  int next_tag();

  MPI_Comm comm_;
  int rank_;
  int size_;
  bool helper_thread_;
  std::unique_ptr<Window> window_;
  SumChoice choice_;
  std::int64_t next_tag_ = 0;
  std::uint64_t windows_ = 0;  // operations in the window so far
  std::atomic<std::uint64_t> bytes_sent_ = 0;
  HostStream host_stream_;
  OperationQueue queue_;  // last, so that its helper thread ends before what it uses
};

RingCommunicator::RingCommunicator(World& world, bool helper_thread, std::unique_ptr<Window> window, SumChoice choice)
    : comm_(duplicate_communicator(world)),
      rank_(world.rank()),
      size_(world.size()),
      helper_thread_(helper_thread),
      window_(std::move(window)),
      choice_(std::move(choice)),
      queue_(helper_thread) {
  queue_.count_in(world.collectives());
}

std::string RingCommunicator::description() const {
  return fmt::format("{} over {}{}", choice_.text(), library_name(), helper_thread_ ? ", helper thread" : "");
}

void RingCommunicator::all_reduce(const Tensor& values, Stream& stream) {
  require_summable(values, MemorySpace::host);
  stream.synchronize();
  if (size_ > 1 && !is_empty(values)) push_sum(values);
}

void RingCommunicator::reduce_scatter_gather(const ShardedSum& sum, Stream& stream) {
  require_sharded(sum, size_, MemorySpace::host);
  stream.synchronize();
  if (size_ == 1) {
    work_on(sum, shard_of(sum, 0), stream);
  } else if (sum.bounds.back() > 0) {
    push_sharded(sum);
  }
}

void RingCommunicator::reduce_to_root(const Tensor& values, Stream& stream) {
  require_summable(values, MemorySpace::host);
  stream.synchronize();
  if (size_ > 1 && !is_empty(values)) push_star(values, StarDirection::reduce_to_root);
}

void RingCommunicator::broadcast(const Tensor& values, Stream& stream) {
  require_passable(values, MemorySpace::host);
  stream.synchronize();
  if (size_ > 1 && !is_empty(values)) push_star(values, StarDirection::broadcast);
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
  std::vector<SumWork> works;
  for (std::int64_t number = 0; number < pieces; ++number) {
    const ElementRange piece = slice_of({0, values.elements()}, number, pieces);
    SumWork& work = works.emplace_back(SumWork{.values = values, .results = values, .chunks = {}, .then = {}});
    for (std::int64_t chunk = 0; chunk < ranks; ++chunk) work.chunks.push_back(slice_of(piece, chunk, ranks));
  }
  push_works(std::move(works));
}

// Piece k of the sum is made of the k-th piece of every shard.
void RingCommunicator::push_sharded(const ShardedSum& sum) {
  const ElementType type = is_empty(sum.values) ? sum.results.type : sum.values.type;
  std::int64_t pieces = 1;
  for (int r = 0; r < size(); ++r) pieces = std::max(pieces, pieces_of(shard_of(sum, r).elements(), type));
  std::vector<SumWork> works;
  for (std::int64_t piece = 0; piece < pieces; ++piece) {
    SumWork& work = works.emplace_back(SumWork{.values = sum.values, .results = sum.results, .chunks = {}, .then = {}});
    for (int chunk = 0; chunk < size(); ++chunk) {
      work.chunks.push_back(slice_of(shard_of(sum, (chunk + size() - 1) % size()), piece, pieces));
    }
    if (sum.then) {
      work.then = [this, then = sum.then](const ElementRange& whole) { then(host_stream_, whole.begin, whole.end); };
    }
  }
  push_works(std::move(works));
}

SumAlgorithm RingCommunicator::algorithm_for(const SumWork& work) const {
  const std::int64_t elements = std::max(work.values.elements(), work.results.elements());
  const SumAlgorithm chosen = choice_.of(elements * static_cast<std::int64_t>(sizeof(float)));
  const auto outside = [&](const Tensor& tensor) { return !is_empty(tensor) && !window_->find(tensor); };
  if (chosen == SumAlgorithm::window && (outside(work.values) || outside(work.results))) return SumAlgorithm::ring;
  return chosen;
}

// All works of a push are of the same tensors.
void RingCommunicator::push_works(std::vector<SumWork> works) {
  const Tensor values = works.front().values;
  const Tensor results = works.front().results;
  const SumAlgorithm algorithm = algorithm_for(works.front());
  Operations operations;
  if (algorithm == SumAlgorithm::window) {
    operations.push_back(std::make_unique<WindowOperation>(*window_, place(), std::move(works), ++windows_));
    return push(values, results, std::move(operations));
  }
  for (SumWork& work : works) {
    if (algorithm == SumAlgorithm::direct) {
      operations.push_back(std::make_unique<DirectOperation>(place(), std::move(work), next_tag()));
    } else {
      operations.push_back(std::make_unique<RingOperation>(place(), std::move(work), next_tag()));
    }
  }
  push(values, results, std::move(operations));
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

void RingCommunicator::choose(World& world) {
  // First what is best for long sums: no copies, or no more messages at once than a slow network can take.
  std::vector<SumAlgorithm> candidates;
  if (window_) candidates.push_back(SumAlgorithm::window);
  candidates.push_back(SumAlgorithm::ring);
  // Of two ranks, a ring is the same; of many, connections to all others would be opened for trying alone.
  if (size_ > 2 && size_ <= kMostDirect) candidates.push_back(SumAlgorithm::direct);
  if (candidates.size() == 1) return;
  Buffer memory;
  run_agreed(world, [&] { memory = allocate(kLongestMeasured); });
  choice_ = measured_choice(world, candidates, [&](SumAlgorithm algorithm, std::int64_t bytes) {
    choice_ = SumChoice(algorithm);
    const auto sums = [&](int number) {
      for (int i = 0; i < number; ++i) {
        all_reduce(memory.view(Shape{bytes / 4}, ElementType::f32), host_stream_);
        finish(host_stream_);
      }
    };
    sums(1);  // brings the ranks together, and their memory
    const Stopwatch watch;
    sums(kSums - 1);
    return watch.seconds() / (kSums - 1);
  });
}

int RingCommunicator::next_tag() { return static_cast<int>(next_tag_++ % kTags); }

constexpr std::int64_t kPieceElements = std::int64_t{1} << 28;  // MPI counts with int

// One collective call of the library, which matches them between ranks by their order: that of the queue.
class LibraryOperation final : public Operation {
 public:
  LibraryOperation(MPI_Comm comm, const Tensor& values, bool blocks) : comm_(comm), values_(values), blocks_(blocks) {}

  void start() override {
    const int count = static_cast<int>(values_.elements());
    const MPI_Datatype type = values_.type == ElementType::f32 ? MPI_FLOAT : MPI_INT64_T;
    check(blocks_ ? MPI_Allreduce(MPI_IN_PLACE, values_.data, count, type, MPI_SUM, comm_)
                  : MPI_Iallreduce(MPI_IN_PLACE, values_.data, count, type, MPI_SUM, comm_, &request_));
  }

  State advance() override {
    int done = 0;
    check(MPI_Test(&request_, &done, MPI_STATUS_IGNORE));
    return done != 0 ? State::done : State::waiting;
  }

 private:
  MPI_Comm comm_;
  Tensor values_;
  bool blocks_;
  MPI_Request request_ = MPI_REQUEST_NULL;
};

// The library does not report what it sends.
class LibraryCommunicator final : public RingCommunicator {
 public:
  LibraryCommunicator(World& world, bool blocks)
      : RingCommunicator(world, false, nullptr, SumChoice(SumAlgorithm::ring)), blocks_(blocks) {}

  std::string description() const override { return fmt::format("all-reduce of {}", library_name()); }

 private:
  void push_sum(const Tensor& values) override {
    const auto ranks = static_cast<std::uint64_t>(size());
    place().bytes_sent += 2 * (ranks - 1) * values.bytes() / ranks;
    Operations operations;
    for (std::int64_t first = 0; first < values.elements(); first += kPieceElements) {
      const Tensor piece = part_of(values, {first, std::min(first + kPieceElements, values.elements())});
      operations.push_back(std::make_unique<LibraryOperation>(place().comm, piece, blocks_));
    }
    push(values, {}, std::move(operations));
  }

  bool blocks_;
};

}  // namespace
}  // namespace tutti::mpi

namespace tutti {

std::unique_ptr<Communicator> make_mpi_ring_communicator(World& world, const RingOptions& options) {
  const bool measures = options.algorithm == SumAlgorithm::automatic;
  const bool by_window = options.algorithm == SumAlgorithm::window;
  std::unique_ptr<Window> window;
  if (by_window || (measures && world.size() > 1)) window = Window::open(world);
  if (by_window && !window) {
    throw Error(ErrorSource::usage, "the ranks cannot see each other's memory, so that no sum can go by it")
        .on_all_ranks();
  }
  auto made =
      std::make_unique<mpi::RingCommunicator>(world, options.helper_thread, std::move(window),
                                              mpi::SumChoice(measures ? SumAlgorithm::ring : options.algorithm));
  if (measures && world.size() > 1) made->choose(world);
  return made;
}

std::unique_ptr<Communicator> make_mpi_library_communicator(World& world) {
  return std::make_unique<mpi::LibraryCommunicator>(world, false);
}

std::unique_ptr<Communicator> make_mpi_blocking_communicator(World& world) {
  return std::make_unique<mpi::LibraryCommunicator>(world, true);
}

}  // namespace tutti
