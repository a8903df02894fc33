#include "tutti/comm/communicator.hpp"

#include "tutti/base/error.hpp"
#include "tutti/base/timing.hpp"

#include "../arguments.hpp"
#include "../peer_memory.hpp"
#include "algorithm_choice.hpp"
#include "collective_operations.hpp"
#include "mpi_calls.hpp"
#include "operation_queue.hpp"

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

// More than the operations that can be in flight. All MPI libraries support tags up to 32767.
constexpr std::int64_t kTags = 1024;
static_assert(static_cast<std::int64_t>(kMaxOperationsInFlight) < kTags);

constexpr int kMaxDirectRanks = 64;

// The number of pieces, of at most `messages_per_piece` messages each, into which a tensor is split. Adding one message
// overlaps receiving the next, and a message stays in the cache until it is sent on.
std::int64_t pieces_of(std::int64_t elements, ElementType type, std::int64_t messages_per_piece = 1) {
  const std::int64_t longest = messages_per_piece * (kMaxMessageBytes / static_cast<std::int64_t>(bytes_of(type)));
  return (elements + longest - 1) / longest;
}

ElementRange split_range(const ElementRange& range, std::int64_t index, std::int64_t count) {
  return {range.begin + range.elements() * index / count, range.begin + range.elements() * (index + 1) / count};
}

// Collectives on host memory through MPI's point-to-point messages or shared memory, split into operations that a queue
// advances.
class MpiCommunicator : public Communicator {
 public:
  // `peer_memory` is null if the ranks do not share memory; `choice` then never selects `window`. Collective.
  MpiCommunicator(World& world, bool helper_thread, std::unique_ptr<PeerMemory> peer_memory, AlgorithmChoice choice);
  // Chooses the algorithms by measuring. Collective.
  void choose(World& world);

  int rank() const override { return rank_; }
  int size() const override { return size_; }
  std::string description() const override;
  std::vector<AllReduceThreshold> thresholds() const override { return choice_.thresholds(); }
  Buffer allocate(std::size_t bytes) override {
    return peer_memory_ ? peer_memory_->allocate(bytes) : allocate_host(bytes);
  }
  void all_reduce(const Tensor& values, Stream& stream) override;
  void reduce_scatter_gather(const ReduceScatterGather& sum, Stream& stream) override;
  void reduce_to_root(const Tensor& values, Stream& stream) override;
  void broadcast(const Tensor& values, Stream& stream) override;
  bool progress() override { return queue_.progress(); }
  void finish(Stream&) override { queue_.finish(); }
  void abort() noexcept override { queue_.abort(); }
  std::uint64_t bytes_sent() const override { return bytes_sent_.load(std::memory_order_relaxed); }

 protected:
  MpiRank self() { return {.comm = comm_, .rank = rank_, .size = size_, .bytes_sent = bytes_sent_}; }
  // The second tensor may be empty.
  void push(const Tensor& memory, const Tensor& more, Operations operations);

 private:
  // The callers of these functions have checked that tensors are not empty and that there are at least two ranks.
  virtual void push_sum(const Tensor& values);
  void push_reduce_scatter_gather(const ReduceScatterGather& sum);
  void push_reductions(std::vector<Reduction> reductions);
  void push_root_operations(const Tensor& values, RootDirection direction);
  AllReduceAlgorithm algorithm_for(const Reduction& reduction) const;
  int next_tag();

  MPI_Comm comm_;
  int rank_;
  int size_;
  bool helper_thread_;
  std::unique_ptr<PeerMemory> peer_memory_;
  AlgorithmChoice choice_;
  std::int64_t next_tag_ = 0;
  std::uint64_t window_operations_ = 0;  // operations in shared memory so far
  std::atomic<std::uint64_t> bytes_sent_ = 0;
  IdleStream host_stream_;
  OperationQueue queue_;  // last, so that its helper thread ends before the members that it uses
};

MpiCommunicator::MpiCommunicator(World& world, bool helper_thread, std::unique_ptr<PeerMemory> peer_memory,
                                 AlgorithmChoice choice)
    : comm_(duplicate_communicator(world)),
      rank_(world.rank()),
      size_(world.size()),
      helper_thread_(helper_thread),
      peer_memory_(std::move(peer_memory)),
      choice_(std::move(choice)),
      queue_(helper_thread) {
  queue_.set_collective_counter(world.collectives());
}

std::string MpiCommunicator::description() const {
  return fmt::format("{} over {}{}", choice_.text(), library_name(), helper_thread_ ? ", helper thread" : "");
}

void MpiCommunicator::all_reduce(const Tensor& values, Stream& stream) {
  require_summable(values, MemorySpace::host);
  stream.synchronize();
  if (size_ > 1 && !is_empty(values)) push_sum(values);
}

void MpiCommunicator::reduce_scatter_gather(const ReduceScatterGather& sum, Stream& stream) {
  require_valid_shards(sum, size_, MemorySpace::host);
  stream.synchronize();
  if (size_ == 1) {
    transform_piece(sum, shard_of(sum, 0), stream);
  } else if (sum.bounds.back() > 0) {
    push_reduce_scatter_gather(sum);
  }
}

void MpiCommunicator::reduce_to_root(const Tensor& values, Stream& stream) {
  require_summable(values, MemorySpace::host);
  stream.synchronize();
  if (size_ > 1 && !is_empty(values)) push_root_operations(values, RootDirection::reduce_to_root);
}

void MpiCommunicator::broadcast(const Tensor& values, Stream& stream) {
  require_sendable(values, MemorySpace::host);
  stream.synchronize();
  if (size_ > 1 && !is_empty(values)) push_root_operations(values, RootDirection::broadcast);
}

void MpiCommunicator::push(const Tensor& memory, const Tensor& more, Operations operations) {
  const auto bytes_of = [](const Tensor& tensor) {
    return std::span(static_cast<const std::byte*>(tensor.data), is_empty(tensor) ? 0 : tensor.bytes());
  };
  queue_.push({bytes_of(memory), bytes_of(more)}, std::move(operations));
}

void MpiCommunicator::push_sum(const Tensor& values) {
  const std::int64_t ranks = size();
  const std::int64_t pieces = pieces_of(values.elements(), values.type, ranks);
  std::vector<Reduction> reductions;
  for (std::int64_t index = 0; index < pieces; ++index) {
    const ElementRange piece = split_range({0, values.elements()}, index, pieces);
    Reduction& reduction =
        reductions.emplace_back(Reduction{.values = values, .results = values, .chunks = {}, .transform_shard = {}});
    for (std::int64_t chunk = 0; chunk < ranks; ++chunk) reduction.chunks.push_back(split_range(piece, chunk, ranks));
  }
  push_reductions(std::move(reductions));
}

// Piece k of the operation consists of the k-th piece of every shard.
void MpiCommunicator::push_reduce_scatter_gather(const ReduceScatterGather& sum) {
  const ElementType type = is_empty(sum.values) ? sum.results.type : sum.values.type;
  std::int64_t pieces = 1;
  for (int r = 0; r < size(); ++r) pieces = std::max(pieces, pieces_of(shard_of(sum, r).elements(), type));
  std::vector<Reduction> reductions;
  for (std::int64_t piece = 0; piece < pieces; ++piece) {
    Reduction& reduction = reductions.emplace_back(
        Reduction{.values = sum.values, .results = sum.results, .chunks = {}, .transform_shard = {}});
    for (int chunk = 0; chunk < size(); ++chunk) {
      reduction.chunks.push_back(split_range(shard_of(sum, (chunk + size() - 1) % size()), piece, pieces));
    }
    if (sum.transform_shard) {
      reduction.transform_shard = [this, transform = sum.transform_shard](const ElementRange& chunk) {
        transform(host_stream_, chunk.begin, chunk.end);
      };
    }
  }
  push_reductions(std::move(reductions));
}

AllReduceAlgorithm MpiCommunicator::algorithm_for(const Reduction& reduction) const {
  const std::int64_t elements = std::max(reduction.values.elements(), reduction.results.elements());
  const AllReduceAlgorithm chosen = choice_.for_size(elements * static_cast<std::int64_t>(sizeof(float)));
  const auto outside = [&](const Tensor& tensor) { return !is_empty(tensor) && !peer_memory_->find(tensor); };
  if (chosen == AllReduceAlgorithm::window && (outside(reduction.values) || outside(reduction.results)))
    return AllReduceAlgorithm::ring;
  return chosen;
}

// All reductions of a push use the same tensors.
void MpiCommunicator::push_reductions(std::vector<Reduction> reductions) {
  const Tensor values = reductions.front().values;
  const Tensor results = reductions.front().results;
  const AllReduceAlgorithm algorithm = algorithm_for(reductions.front());
  Operations operations;
  if (algorithm == AllReduceAlgorithm::window) {
    operations.push_back(
        std::make_unique<WindowOperation>(*peer_memory_, self(), std::move(reductions), ++window_operations_));
    return push(values, results, std::move(operations));
  }
  for (Reduction& reduction : reductions) {
    if (algorithm == AllReduceAlgorithm::direct) {
      operations.push_back(std::make_unique<DirectOperation>(self(), std::move(reduction), next_tag()));
    } else {
      operations.push_back(std::make_unique<RingOperation>(self(), std::move(reduction), next_tag()));
    }
  }
  push(values, results, std::move(operations));
}

void MpiCommunicator::push_root_operations(const Tensor& values, RootDirection direction) {
  const std::int64_t pieces = pieces_of(values.elements(), values.type);
  Operations operations;
  for (std::int64_t piece = 0; piece < pieces; ++piece) {
    const Tensor values_of_piece = subtensor(values, split_range({0, values.elements()}, piece, pieces));
    operations.push_back(std::make_unique<RootOperation>(self(), values_of_piece, direction, next_tag()));
  }
  push(values, {}, std::move(operations));
}

void MpiCommunicator::choose(World& world) {
  // The first candidate is the best one for large sizes: without copies, or with few messages for a slow network.
  std::vector<AllReduceAlgorithm> candidates;
  if (peer_memory_) candidates.push_back(AllReduceAlgorithm::window);
  candidates.push_back(AllReduceAlgorithm::ring);
  // With two ranks, `direct` equals `ring`. With many ranks, trying it would open connections between all of them.
  if (size_ > 2 && size_ <= kMaxDirectRanks) candidates.push_back(AllReduceAlgorithm::direct);
  if (candidates.size() == 1) return;
  Buffer memory;
  run_or_throw_on_all(world, [&] { memory = allocate(kMaxMeasuredBytes); });
  choice_ = measured_choice(world, candidates, [&](AllReduceAlgorithm algorithm, std::int64_t bytes) {
    choice_ = AlgorithmChoice(algorithm);
    const auto run = [&](int count) {
      for (int i = 0; i < count; ++i) {
        all_reduce(memory.view(Shape{bytes / 4}, ElementType::f32), host_stream_);
        finish(host_stream_);
      }
    };
    run(1);  // warms up: synchronises the ranks and maps their memory
    const Stopwatch watch;
    run(kTrials - 1);
    return watch.seconds() / (kTrials - 1);
  });
}

int MpiCommunicator::next_tag() { return static_cast<int>(next_tag_++ % kTags); }

constexpr std::int64_t kPieceElements = std::int64_t{1} << 28;  // MPI counts with int

// One MPI all-reduce call. MPI matches calls between ranks by their order, which is that of the queue.
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

// Uses the MPI library's all-reduce, which does not report the bytes that it sends.
class LibraryCommunicator final : public MpiCommunicator {
 public:
  LibraryCommunicator(World& world, bool blocks)
      : MpiCommunicator(world, false, nullptr, AlgorithmChoice(AllReduceAlgorithm::ring)), blocks_(blocks) {}

  std::string description() const override { return fmt::format("all-reduce of {}", library_name()); }

 private:
  void push_sum(const Tensor& values) override {
    const auto ranks = static_cast<std::uint64_t>(size());
    self().bytes_sent += 2 * (ranks - 1) * values.bytes() / ranks;
    Operations operations;
    for (std::int64_t first = 0; first < values.elements(); first += kPieceElements) {
      const Tensor piece = subtensor(values, {first, std::min(first + kPieceElements, values.elements())});
      operations.push_back(std::make_unique<LibraryOperation>(self().comm, piece, blocks_));
    }
    push(values, {}, std::move(operations));
  }

  bool blocks_;
};

}  // namespace
}  // namespace tutti::mpi

namespace tutti {

std::unique_ptr<Communicator> make_mpi_communicator(World& world, const MpiOptions& options) {
  const bool measures = options.algorithm == AllReduceAlgorithm::automatic;
  const bool needs_window = options.algorithm == AllReduceAlgorithm::window;
  std::unique_ptr<PeerMemory> peer_memory;
  if (needs_window || (measures && world.size() > 1)) peer_memory = PeerMemory::open(world);
  if (needs_window && !peer_memory) {
    throw Error(ErrorSource::usage, "the ranks do not share memory, so the algorithm 'window' cannot be used")
        .on_all_ranks();
  }
  auto made = std::make_unique<mpi::MpiCommunicator>(
      world, options.helper_thread, std::move(peer_memory),
      mpi::AlgorithmChoice(measures ? AllReduceAlgorithm::ring : options.algorithm));
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
