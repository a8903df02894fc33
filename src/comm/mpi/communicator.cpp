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
#include <memory>
#include <utility>
#include <vector>

namespace tutti::mpi {
namespace {

constexpr std::int64_t kMaxMessageBytes = std::int64_t{512} << 10;
constexpr int kMaxDirectRanks = 64;

// The number of pieces, of at most `messages_per_piece` messages each, into which a tensor is split. Adding one message
// overlaps receiving the next, and a message stays in the cache until it is sent on.
std::int64_t pieces_for(std::int64_t elements, ElementType type, std::int64_t messages_per_piece = 1) {
  const std::int64_t longest = messages_per_piece * (kMaxMessageBytes / static_cast<std::int64_t>(bytes_of(type)));
  return (elements + longest - 1) / longest;
}

IndexRange split_range(const IndexRange& range, std::int64_t index, std::int64_t count) {
  return {range.begin + range.size() * index / count, range.begin + range.size() * (index + 1) / count};
}

// Collectives on host memory through MPI's point-to-point messages or shared memory, split into operations that a queue
// advances.
class MpiCommunicator : public Communicator {
 public:
  // `peer_memory` is null if the ranks do not share memory; `algorithm` is then not `window`. Collective.
  MpiCommunicator(World& world, bool helper_thread, std::unique_ptr<PeerMemory> peer_memory,
                  AllReduceAlgorithm algorithm)
      : helper_thread_(helper_thread),
        peer_memory_(std::move(peer_memory)),
        thresholds_{{.algorithm = algorithm}},
        self_{.comm = duplicate_communicator(world), .rank = world.rank(), .size = world.size()},
        queue_(helper_thread, world.collectives()) {}

  // Chooses the algorithms by measuring. Collective.
  void choose_algorithms(World& world) {
    // The first candidate is the best one for large sizes: without copies, or with few messages for a slow network.
    std::vector<AllReduceAlgorithm> candidates;
    if (peer_memory_) candidates.push_back(AllReduceAlgorithm::shared_memory);
    candidates.push_back(AllReduceAlgorithm::ring);
    // With two ranks, `direct` equals `ring`. With many ranks, trying it would open connections between all of them.
    if (size() > 2 && size() <= kMaxDirectRanks) candidates.push_back(AllReduceAlgorithm::direct);
    if (candidates.size() == 1) return;
    Buffer memory;
    run_or_throw_on_all(world, [&] { memory = allocate(kMaxMeasuredBytes); });
    IdleStream stream;
    thresholds_ = measure_thresholds(world, candidates, [&](AllReduceAlgorithm algorithm, std::int64_t bytes) {
      thresholds_ = {{.algorithm = algorithm}};
      const auto run = [&](int count) {
        for (int i = 0; i < count; ++i) {
          all_reduce(memory.view(Shape{bytes / 4}, ElementType::f32), stream);
          finish(stream);
        }
      };
      run(1);  // warms up: synchronizes the ranks and maps their memory
      const Stopwatch watch;
      run(kTrials - 1);
      return watch.seconds() / (kTrials - 1);
    });
  }

  int rank() const override { return self_.rank; }
  int size() const override { return self_.size; }
  std::string description() const override {
    return fmt::format("{} over {}{}", text_of(thresholds_), mpi_library_version(),
                       helper_thread_ ? ", helper thread" : "");
  }
  std::vector<AllReduceThreshold> thresholds() const override { return thresholds_; }
  Buffer allocate(std::size_t bytes) override {
    return peer_memory_ ? peer_memory_->allocate(bytes) : allocate_host(bytes);
  }

  void all_reduce(const Tensor& values, Stream& stream) override {
    require_summable(values, MemorySpace::host);
    stream.synchronize();
    if (size() > 1 && !is_empty(values)) push_all_reduce(values);
  }
  void reduce_scatter_gather(const ReduceScatterGather& request, Stream& stream) override {
    require_valid_shards(request, size(), MemorySpace::host);
    stream.synchronize();
    if (size() == 1) {
      transform_piece(request, shard_of(request, 0), stream);
    } else if (request.bounds.back() > 0) {
      push_reduce_scatter_gather(request);
    }
  }
  void reduce_to_root(const Tensor& values, Stream& stream) override {
    require_summable(values, MemorySpace::host);
    push_root_operations(values, RootDirection::reduce_to_root, stream);
  }
  void broadcast(const Tensor& values, Stream& stream) override {
    require_sendable(values, MemorySpace::host);
    push_root_operations(values, RootDirection::broadcast, stream);
  }

  bool progress() override { return queue_.progress(); }
  void finish(Stream&) override { queue_.finish(); }
  void abort() noexcept override { queue_.abort(); }
  std::uint64_t bytes_sent() const override { return self_.bytes_sent.load(std::memory_order_relaxed); }

 protected:
  MpiRank& self() { return self_; }
  void push(const OperationMemory& memory, Operations operations) { queue_.push(memory, std::move(operations)); }
  // The callers of push_all_reduce and push_reduce_scatter_gather have checked that tensors are not empty, and that
  // there are at least two ranks.
  virtual void push_all_reduce(const Tensor& values) {
    const std::int64_t ranks = size();
    const std::int64_t pieces = pieces_for(values.elements(), values.type, ranks);
    std::vector<Reduction> reductions;
    for (std::int64_t index = 0; index < pieces; ++index) {
      const IndexRange piece = split_range({0, values.elements()}, index, pieces);
      auto& chunks = reductions.emplace_back(Reduction{values, values, {}, {}}).chunks;
      for (std::int64_t chunk = 0; chunk < ranks; ++chunk) chunks.push_back(split_range(piece, chunk, ranks));
    }
    push_reductions(std::move(reductions));
  }

 private:
  // Piece k of the operation consists of the k-th piece of every shard.
  void push_reduce_scatter_gather(const ReduceScatterGather& request) {
    const ElementType type = is_empty(request.values) ? request.results.type : request.values.type;
    std::int64_t pieces = 1;
    for (int r = 0; r < size(); ++r) pieces = std::max(pieces, pieces_for(shard_of(request, r).size(), type));
    std::vector<Reduction> reductions;
    for (std::int64_t piece = 0; piece < pieces; ++piece) {
      auto& chunks =
          reductions.emplace_back(Reduction{request.values, request.results, request.transform_shard, {}}).chunks;
      for (int chunk = 0; chunk < size(); ++chunk) {
        chunks.push_back(split_range(shard_of(request, (chunk + size() - 1) % size()), piece, pieces));
      }
    }
    push_reductions(std::move(reductions));
  }

  // All reductions of a push use the same tensors.
  void push_reductions(std::vector<Reduction> reductions) {
    const OperationMemory memory = memory_of(reductions.front().values, reductions.front().results);
    const AllReduceAlgorithm algorithm = algorithm_of(reductions.front());
    Operations operations;
    if (algorithm == AllReduceAlgorithm::shared_memory) {
      operations.push_back(make_window_operation(self_, *peer_memory_, std::move(reductions), ++window_operations_));
      return push(memory, std::move(operations));
    }
    const auto make = algorithm == AllReduceAlgorithm::direct ? make_direct_operation : make_ring_operation;
    for (Reduction& reduction : reductions) operations.push_back(make(self_, std::move(reduction)));
    push(memory, std::move(operations));
  }

  AllReduceAlgorithm algorithm_of(const Reduction& reduction) const {
    const std::int64_t elements = std::max(reduction.values.elements(), reduction.results.elements());
    const AllReduceAlgorithm chosen = algorithm_for(thresholds_, elements * static_cast<std::int64_t>(sizeof(float)));
    const auto outside = [&](const Tensor& tensor) { return !is_empty(tensor) && !peer_memory_->find(tensor); };
    if (chosen != AllReduceAlgorithm::shared_memory) return chosen;
    return outside(reduction.values) || outside(reduction.results) ? AllReduceAlgorithm::ring : chosen;
  }

  void push_root_operations(const Tensor& values, RootDirection direction, Stream& stream) {
    stream.synchronize();
    if (size() == 1 || is_empty(values)) return;
    const std::int64_t pieces = pieces_for(values.elements(), values.type);
    Operations operations;
    for (std::int64_t piece = 0; piece < pieces; ++piece) {
      const Tensor values_of_piece = elements_of(values, split_range({0, values.elements()}, piece, pieces));
      operations.push_back(make_root_operation(self_, values_of_piece, direction));
    }
    push(memory_of(values), std::move(operations));
  }

  bool helper_thread_;
  std::unique_ptr<PeerMemory> peer_memory_;
  std::vector<AllReduceThreshold> thresholds_;
  std::uint64_t window_operations_ = 0;  // operations in shared memory so far
  MpiRank self_;
  OperationQueue queue_;  // last, so that its helper thread ends before the members that it uses
};

constexpr std::int64_t kPieceElements = std::int64_t{1} << 28;  // MPI counts with int

// One MPI all-reduce call. MPI matches calls between ranks by their order, which is that of the queue.
class LibraryOperation final : public Operation {
 public:
  LibraryOperation(MPI_Comm comm, const Tensor& values, bool blocks) : comm_(comm), values_(values), blocks_(blocks) {}

  void start() override {
    const int count = static_cast<int>(values_.elements());
    const MPI_Datatype type = values_.type == ElementType::f32   ? MPI_FLOAT
                              : values_.type == ElementType::i32 ? MPI_INT32_T
                                                                 : MPI_INT64_T;
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
      : MpiCommunicator(world, false, nullptr, AllReduceAlgorithm::ring), blocks_(blocks) {}

  std::string description() const override { return fmt::format("all-reduce of {}", mpi_library_version()); }

 private:
  void push_all_reduce(const Tensor& values) override {
    if (values.type == ElementType::bf16) return MpiCommunicator::push_all_reduce(values);  // unknown to MPI
    const auto ranks = static_cast<std::uint64_t>(size());
    self().bytes_sent += 2 * (ranks - 1) * values.bytes() / ranks;
    Operations operations;
    for (std::int64_t first = 0; first < values.elements(); first += kPieceElements) {
      const Tensor piece = elements_of(values, {first, std::min(first + kPieceElements, values.elements())});
      operations.push_back(std::make_unique<LibraryOperation>(self().comm, piece, blocks_));
    }
    push(memory_of(values), std::move(operations));
  }

  bool blocks_;
};

}  // namespace
}  // namespace tutti::mpi

namespace tutti {

std::unique_ptr<Communicator> make_mpi_communicator(World& world, const MpiOptions& options) {
  const bool measures = options.algorithm == AllReduceAlgorithm::automatic;
  const bool needs_shared_memory = options.algorithm == AllReduceAlgorithm::shared_memory;
  std::unique_ptr<PeerMemory> peer_memory;
  if (needs_shared_memory || (measures && world.size() > 1)) peer_memory = PeerMemory::open(world);
  if (needs_shared_memory && !peer_memory) {
    throw Error(ErrorSource::usage, "the ranks do not share memory, so the algorithm 'window' cannot be used")
        .on_all_ranks();
  }
  auto made = std::make_unique<mpi::MpiCommunicator>(world, options.helper_thread, std::move(peer_memory),
                                                     measures ? AllReduceAlgorithm::ring : options.algorithm);
  if (measures && world.size() > 1) made->choose_algorithms(world);
  return made;
}

std::unique_ptr<Communicator> make_mpi_library_communicator(World& world, bool blocks) {
  return std::make_unique<mpi::LibraryCommunicator>(world, blocks);
}

}  // namespace tutti
