#include "tutti/backend/cuda_stream.hpp"
#include "tutti/base/error.hpp"
#include "tutti/base/timing.hpp"
#include "tutti/comm/nccl_library.hpp"

#include "../arguments.hpp"
#include "../backoff.hpp"
#include "connection.hpp"
#include "transport.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

// Collectives on the ranks' GPUs by NCCL, on their own stream, concurrent with the compute stream.

namespace tutti::nccl {
namespace {

std::string version() {
  int number = 0;
  check(ncclGetVersion(&number));
  return fmt::format("{}.{}.{}", number / 10000, number % 10000 / 100, number % 100);
}

// In reduce_to_root, rank 0 receives pieces of this size from this many ranks at a time, which bounds its scratch
// memory.
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

std::uint64_t bytes_outside(const ElementRange& shard, const Tensor& values) {
  return values.bytes() - subtensor(values, shard).bytes();
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

// Enqueues collectives as NCCL calls on a stream. Each function returns the payload bytes that this rank sends,
// assuming a ring where NCCL chooses the algorithm. The values have been checked and are not empty. All functions are
// collective and asynchronous; they return when the calls are on the stream.
struct NcclCalls {
  const Connection& connection;
  CudaStream& stream;
  const std::string& name;  // for messages

  std::uint64_t all_reduce(const Tensor& values) const {
    wait_for(ncclAllReduce(values.data, values.data, static_cast<std::size_t>(values.elements()), type_of(values),
                           ncclSum, connection.native(), native()));
    return 2 * static_cast<std::uint64_t>(connection.size() - 1) * values.bytes() /
           static_cast<std::uint64_t>(connection.size());
  }

  std::uint64_t reduce_scatter_gather(const ReduceScatterGather& request) const {
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

  std::uint64_t reduce_to_root(const Tensor& values) const {
    const std::int64_t elements = values.elements();
    const std::int64_t longest = std::min<std::int64_t>(elements, kPieceBytes / std::int64_t{sizeof(float)});
    for (std::int64_t begin = 0; begin < elements; begin += longest) {
      const Tensor piece = subtensor(values, {begin, std::min(begin + longest, elements)});
      if (connection.rank() == 0) {
        add_other_ranks(piece);
      } else {
        wait_for(ncclSend(piece.data, static_cast<std::size_t>(piece.elements()), ncclFloat32, 0, connection.native(),
                          native()));
      }
    }
    return connection.rank() == 0 ? 0 : values.bytes();
  }

  std::uint64_t broadcast(const Tensor& values) const {
    const auto count = static_cast<std::size_t>(values.elements());
    const ncclDataType_t type = type_of(values);
    if (connection.rank() != 0) {
      wait_for(ncclRecv(values.data, count, type, 0, connection.native(), native()));
      return 0;
    }
    Group group;
    for (int rank = 1; rank < connection.size(); ++rank) {
      group.add(ncclSend(values.data, count, type, rank, connection.native(), native()));
    }
    wait_for(group.end());
    return static_cast<std::uint64_t>(connection.size() - 1) * values.bytes();
  }

 private:
  void wait_for(ncclResult_t result) const { connection.wait_until_done(result, name); }
  cudaStream_t native() const { return static_cast<cudaStream_t>(stream.native()); }

  // One call can handle shards of equal length, except a remainder of the last one. A remainder, or shards of different
  // lengths, need a call each.
  template <class CallForAll, class CallForOne>
  void call_for_shards(const std::vector<std::int64_t>& bounds, const Tensor& tensor, const CallForAll& call_for_all,
                       const CallForOne& call_for_one) const {
    Group group;
    const std::int64_t count = equal_count(bounds);
    if (count > 0) {
      void* const mine = subtensor(tensor, {count * connection.rank(), tensor.elements()}).data;
      group.add(call_for_all(tensor.data, mine, static_cast<std::size_t>(count)));
    }
    for (int rank = count > 0 ? connection.size() - 1 : 0; rank < connection.size(); ++rank) {
      const auto at = static_cast<std::size_t>(rank);
      const ElementRange shard{count > 0 ? connection.size() * count : bounds[at], bounds[at + 1]};
      if (shard.elements() == 0) continue;
      group.add(call_for_one(subtensor(tensor, shard).data, static_cast<std::size_t>(shard.elements()), rank));
    }
    wait_for(group.end());
  }

  void add_other_ranks(const Tensor& piece) const {
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
      wait_for(group.end());
      for (const Tensor& addend : addends) add_on_cuda(stream, piece, addend);
    }
  }
};

// An operation in flight.
struct PendingOperation {
  std::unique_ptr<Event> ready;  // this rank's values are ready
  std::unique_ptr<Event> done;
  std::string name;
};

class NcclCommunicator final : public Communicator {
 public:
  NcclCommunicator(World& world, const NcclOptions& options)
      : share_device_(options.share_device),
        collectives_(world.collectives()),
        stream_(make_stream(world, options)),
        connection_(world, options),
        transport_(transport_text(world, transport_in(read_log()))) {
    // Ranks that share a device use sockets on purpose.
    if (!share_device_ && world.rank() == 0 && options.warn && transport_.find("Socket between") != std::string::npos) {
      options.warn(
          "NCCL connects the hosts by sockets, which are slow: if they have InfiniBand or RoCE, NCCL must find its "
          "library (libibverbs.so) and its adapters, which NCCL_IB_HCA chooses; NCCL_DEBUG=INFO tells why it did not");
    }
  }

  int rank() const override { return connection_.rank(); }
  int size() const override { return connection_.size(); }
  std::string description() const override {
    return fmt::format("NCCL {}{}{}{}", version(), transport_.empty() ? "" : " over ", transport_,
                       share_device_ ? ", ranks share a device" : "");
  }
  Buffer allocate(std::size_t bytes) override { return allocate_cuda(stream_->device(), bytes); }

  void all_reduce(const Tensor& values, Stream& stream) override {
    require_summable(values, MemorySpace::cuda);
    if (is_empty(values)) return;
    begin({"all_reduce", values.bytes()}, stream, [&](const NcclCalls& calls) { return calls.all_reduce(values); });
  }

  void reduce_scatter_gather(const ReduceScatterGather& request, Stream& stream) override {
    require_valid_shards(request, size(), MemorySpace::cuda);
    if (request.bounds.back() == 0) return;
    const Tensor& sized = is_empty(request.values) ? request.results : request.values;
    begin({"reduce_scatter_gather", sized.bytes()}, stream,
          [&](const NcclCalls& calls) { return calls.reduce_scatter_gather(request); });
  }

  void reduce_to_root(const Tensor& values, Stream& stream) override {
    require_summable(values, MemorySpace::cuda);
    if (values.type != ElementType::f32) throw Error(ErrorSource::internal, "reduce_to_root needs f32 values");
    if (is_empty(values)) return;
    begin({"reduce_to_root", values.bytes()}, stream,
          [&](const NcclCalls& calls) { return calls.reduce_to_root(values); });
  }

  void broadcast(const Tensor& values, Stream& stream) override {
    require_sendable(values, MemorySpace::cuda);
    if (is_empty(values)) return;
    begin({"broadcast", values.bytes()}, stream, [&](const NcclCalls& calls) { return calls.broadcast(values); });
  }

  bool progress() override {
    const std::lock_guard lock(mutex_);
    if (failure_) return false;
    guarded([&] { advance(); });
    return !operations_.empty();
  }

  void finish(Stream& stream) override {
    CudaStream& compute = as_cuda_stream(stream);
    const std::lock_guard lock(mutex_);
    guarded([&] {
      advance();
      compute.wait_for(*stream_);
    });
  }

  void abort() noexcept override {
    const std::lock_guard lock(mutex_);
    fail(Error(ErrorSource::internal, "the communicator was aborted"));
  }

  std::uint64_t bytes_sent() const override {
    const std::lock_guard lock(mutex_);
    return bytes_sent_;
  }

 private:
  // After a failure this aborts the communicator: the other ranks' values will not arrive, and a kernel that waits for
  // them must end before its memory is freed.
  template <class Work>
  void guarded(const Work& work) {
    if (failure_) throw Error(*failure_);
    try {
      work();
    } catch (const Error& error) {
      fail(error);
      throw;
    }
  }

  void fail(const Error& error) noexcept {
    if (!failure_) failure_.emplace(error);
    connection_.abort();
  }

  struct Label {
    std::string_view what;
    std::size_t bytes;
  };

  // `enqueue` is called with an NcclCalls and returns the bytes that this rank sends.
  template <class Enqueue>
  void begin(const Label& label, Stream& stream, const Enqueue& enqueue) {
    CudaStream& compute = as_cuda_stream(stream);
    // On a shared device, compute kernels of one rank would keep other ranks' NCCL kernels from running.
    if (share_device_) compute.synchronize();
    {
      const std::lock_guard lock(mutex_);
      guarded([&] {
        advance();
        PendingOperation operation = spare_operation();
        operation.name = fmt::format("{} #{} ({} bytes)", label.what, ++begun_, label.bytes);
        compute.record(*operation.ready);
        stream_->wait_event(*operation.ready);
        use_cuda_device(stream_->device());
        bytes_sent_ += enqueue(NcclCalls{connection_, *stream_, operation.name});
        stream_->record(*operation.done);
        operations_.push_back(std::move(operation));
      });
    }
    for (Backoff backoff(kMaxTransferSleep); share_device_ && progress(); backoff.wait()) continue;
  }

  PendingOperation spare_operation() {
    if (spare_.empty()) {
      return {.ready = make_cuda_event(stream_->device()), .done = make_cuda_event(stream_->device()), .name = {}};
    }
    PendingOperation operation = std::move(spare_.back());
    spare_.pop_back();
    return operation;
  }

  // Must be called repeatedly while operations are in flight.
  void advance() {
    connection_.check_async_error(operations_.empty() ? "no operation" : operations_.front().name);
    // A rank begins a collective when its values are ready, not when the collective is enqueued.
    while (ready_ < operations_.size() && operations_[ready_].ready->reached()) {
      ++ready_;
      collectives_.begun.fetch_add(1, std::memory_order_relaxed);
    }
    while (ready_ > 0 && operations_.front().done->reached()) {
      spare_.push_back(std::move(operations_.front()));
      operations_.pop_front();
      --ready_;
      collectives_.done.fetch_add(1, std::memory_order_relaxed);
      waited_.reset();
    }
    if (operations_.empty()) return;
    // The deadline of the oldest operation runs from when this rank's values are ready and the operations before are
    // done.
    if (!waited_ && ready_ > 0) waited_.emplace();
    if (waited_ && waited_->seconds() > connection_.deadline_seconds()) {
      throw connection_.timeout_error(operations_.front().name);
    }
  }

  static std::unique_ptr<CudaStream> make_stream(World& world, const NcclOptions& options) {
    std::unique_ptr<CudaStream> stream;
    run_or_throw_on_all(world, [&] { stream = make_cuda_stream(options.device, CudaPriority::urgent); });
    return stream;
  }

  bool share_device_;
  CollectiveCounter& collectives_;
  std::unique_ptr<CudaStream> stream_;

  mutable std::mutex mutex_;  // guards all that follows
  Connection connection_;     // aborted after a failure
  std::string transport_;     // constant
  std::optional<Error> failure_;
  std::deque<PendingOperation> operations_;
  std::size_t ready_ = 0;  // the number of operations whose values are ready on this rank
  std::vector<PendingOperation> spare_;
  std::optional<Stopwatch> waited_;
  std::uint64_t begun_ = 0;
  std::uint64_t bytes_sent_ = 0;
};

std::unique_ptr<Communicator> make_communicator(World& world, const NcclOptions& options) {
  return std::make_unique<NcclCommunicator>(world, options);
}

}  // namespace
}  // namespace tutti::nccl

namespace tutti {

extern "C" const NcclLibrary& tutti_nccl_library() {
  static const NcclLibrary library{.version = nccl::version, .make_communicator = nccl::make_communicator};
  return library;
}

}  // namespace tutti
