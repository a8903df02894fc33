#include "tutti/backend/cuda_stream.hpp"
#include "tutti/base/error.hpp"
#include "tutti/base/timing.hpp"
#include "tutti/comm/nccl_library.hpp"

#include "../arguments.hpp"
#include "../backoff.hpp"
#include "calls.hpp"
#include "connection.hpp"
#include "registered_memory.hpp"
#include "transport.hpp"

#include <fmt/format.h>

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

std::string version() { return text_of_version(version_number()); }

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
        memory_(connection_.registers_memory() ? std::make_unique<RegisteredMemory>(options.device, connection_)
                                               : nullptr),
        transport_(transport_text(world, transport_in(read_log()))) {
    // Ranks that share a device use sockets on purpose.
    if (!share_device_ && world.rank() == 0 && options.warn && transport_.find("Socket between") != std::string::npos) {
      options.warn(
          "NCCL connects the hosts by sockets, which are slow: if they have InfiniBand or RoCE, NCCL must find its "
          "library (libibverbs.so) and its adapters, which NCCL_IB_HCA chooses; NCCL_DEBUG=INFO reports why it did "
          "not");
    }
  }

  int rank() const override { return connection_.rank(); }
  int size() const override { return connection_.size(); }
  std::string description() const override {
    return fmt::format("NCCL {}{}{}{}", version(), transport_.empty() ? "" : " over ", transport_,
                       share_device_ ? ", ranks share a device" : "");
  }
  Buffer allocate(std::size_t bytes) override {
    return memory_ ? memory_->allocate(bytes) : allocate_cuda(stream_->device(), bytes);
  }

  void all_reduce(const Tensor& values, Stream& stream) override {
    require_summable(values, MemorySpace::cuda);
    if (is_empty(values)) return;
    begin({"all_reduce", values.bytes(), memory_of(values)}, stream,
          [&](const NcclCalls& calls) { return calls.all_reduce(values); });
  }

  void reduce_scatter_gather(const ReduceScatterGather& request, Stream& stream) override {
    require_valid_shards(request, size(), MemorySpace::cuda);
    if (request.bounds.back() == 0) return;
    const Tensor& sized = is_empty(request.values) ? request.results : request.values;
    begin({"reduce_scatter_gather", sized.bytes(), memory_of(request.values, request.results)}, stream,
          [&](const NcclCalls& calls) { return calls.reduce_scatter_gather(request); });
  }

  void reduce_to_root(const Tensor& values, Stream& stream) override {
    require_summable(values, MemorySpace::cuda);
    if (values.type != ElementType::f32) throw Error(ErrorSource::internal, "reduce_to_root needs f32 values");
    if (is_empty(values)) return;
    begin({"reduce_to_root", values.bytes(), memory_of(values)}, stream,
          [&](const NcclCalls& calls) { return calls.reduce_to_root(values); });
  }

  void broadcast(const Tensor& values, Stream& stream) override {
    require_sendable(values, MemorySpace::cuda);
    if (is_empty(values)) return;
    begin({"broadcast", values.bytes(), memory_of(values)}, stream,
          [&](const NcclCalls& calls) { return calls.broadcast(values); });
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
    if (memory_) memory_->detach();
    connection_.abort();
  }

  struct Operation {
    std::string_view what;
    std::size_t bytes;
    OperationMemory memory;
  };

  // `enqueue` is called with an NcclCalls and returns the bytes that this rank sends.
  template <class Enqueue>
  void begin(const Operation& begun, Stream& stream, const Enqueue& enqueue) {
    CudaStream& compute = as_cuda_stream(stream);
    // On a shared device, compute kernels of one rank would keep other ranks' NCCL kernels from running.
    if (share_device_) compute.synchronize();
    {
      const std::lock_guard lock(mutex_);
      guarded([&] {
        advance();
        PendingOperation operation = spare_operation();
        operation.name = fmt::format("{} #{} ({} bytes)", begun.what, ++begun_, begun.bytes);
        compute.record(*operation.ready);
        stream_->wait_event(*operation.ready);
        use_cuda_device(stream_->device());
        if (memory_) memory_->register_blocks(begun.memory, operation.name);
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

  mutable std::mutex mutex_;                  // guards all that follows
  Connection connection_;                     // aborted after a failure
  std::unique_ptr<RegisteredMemory> memory_;  // null: collectives copy their memory
  std::string transport_;                     // constant
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
