#include "tutti/backend/cuda_stream.hpp"
#include "tutti/base/error.hpp"
#include "tutti/base/timing.hpp"
#include "tutti/comm/nccl_library.hpp"

#include "../arguments.hpp"
#include "../backoff.hpp"
#include "collectives.hpp"
#include "connection.hpp"

#include <fmt/format.h>

#include <cstddef>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

// Sums over the ranks' GPUs by NCCL, on a stream of its own beside the one that computes.

namespace tutti::nccl {
namespace {

std::string version() {
  int number = 0;
  check(ncclGetVersion(&number));
  return fmt::format("{}.{}.{}", number / 10000, number % 10000 / 100, number % 100);
}

// A sum under way.
struct Sum {
  std::unique_ptr<Event> ready;  // this rank's values are there
  std::unique_ptr<Event> done;
  std::string name;
};

class NcclCommunicator final : public Communicator {
 public:
  NcclCommunicator(World& world, const NcclOptions& options)
      : share_device_(options.share_device),
        collectives_(world.collectives()),
        stream_(make_stream(world, options)),
        connection_(world, options) {}

  int rank() const override { return connection_.rank(); }
  int size() const override { return connection_.size(); }
  std::string description() const override {
    return fmt::format("NCCL {}{}", version(), share_device_ ? ", ranks share a device" : "");
  }
  Buffer allocate(std::size_t bytes) override { return allocate_cuda(stream_->device(), bytes); }

  void all_reduce(const Tensor& values, Stream& stream) override {
    require_summable(values, MemorySpace::cuda);
    if (is_empty(values)) return;
    begin({"sum", values.bytes()}, stream, [&](const Exchange& exchange) { return exchange.all_reduce(values); });
  }

  void reduce_scatter_gather(const ShardedSum& sum, Stream& stream) override {
    require_sharded(sum, size(), MemorySpace::cuda);
    if (sum.bounds.back() == 0) return;
    const Tensor& named = is_empty(sum.values) ? sum.results : sum.values;
    begin({"sharded sum", named.bytes()}, stream,
          [&](const Exchange& exchange) { return exchange.reduce_scatter_gather(sum); });
  }

  void reduce_to_root(const Tensor& values, Stream& stream) override {
    require_summable(values, MemorySpace::cuda);
    if (values.type != ElementType::f32) throw Error(ErrorSource::internal, "central sums are made of f32 values");
    if (is_empty(values)) return;
    begin({"reduce_to_root", values.bytes()}, stream,
          [&](const Exchange& exchange) { return exchange.reduce_to_root(values); });
  }

  void broadcast(const Tensor& values, Stream& stream) override {
    require_passable(values, MemorySpace::cuda);
    if (is_empty(values)) return;
    begin({"broadcast", values.bytes()}, stream, [&](const Exchange& exchange) { return exchange.broadcast(values); });
  }

  bool progress() override {
    const std::lock_guard lock(mutex_);
    if (failure_) return false;
    guarded([&] { advance(); });
    return !sums_.empty();
  }

  void finish(Stream& stream) override {
    CudaStream& compute = as_cuda_stream(stream);
    const std::lock_guard lock(mutex_);
    guarded([&] {
      advance();
      compute.wait_for(*stream_);
    });
  }

  void abandon() noexcept override {
    const std::lock_guard lock(mutex_);
    fail(Error(ErrorSource::internal, "sums were abandoned"));
  }

  std::uint64_t bytes_sent() const override {
    const std::lock_guard lock(mutex_);
    return bytes_sent_;
  }

 private:
  // After a failure the other ranks' values cannot come any more, and a kernel that waits for them must end before the
  // memory that it uses goes.
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

  struct Named {
    std::string_view what;
    std::size_t bytes;
  };

  // `enqueue` is given an Exchange, and returns the bytes that this rank sends.
  template <class Enqueue>
  void begin(const Named& named, Stream& stream, const Enqueue& enqueue) {
    CudaStream& compute = as_cuda_stream(stream);
    // Kernels that compute would keep the other ranks' sums off a shared device, and theirs this one's.
    if (share_device_) compute.synchronize();
    {
      const std::lock_guard lock(mutex_);
      guarded([&] {
        advance();
        Sum sum = spare_sum();
        sum.name = fmt::format("{} {} of {} bytes", named.what, ++begun_, named.bytes);
        compute.record(*sum.ready);
        stream_->follow(*sum.ready);
        use_cuda_device(stream_->device());
        bytes_sent_ += enqueue(Exchange{connection_, *stream_, sum.name});
        stream_->record(*sum.done);
        sums_.push_back(std::move(sum));
      });
    }
    for (Backoff backoff(kUntilMoved); share_device_ && progress(); backoff.wait()) continue;
  }

  Sum spare_sum() {
    if (spare_.empty()) {
      return {.ready = make_cuda_event(stream_->device()), .done = make_cuda_event(stream_->device()), .name = {}};
    }
    Sum sum = std::move(spare_.back());
    spare_.pop_back();
    return sum;
  }

  // To be called again and again while sums are under way.
  void advance() {
    connection_.check_state(sums_.empty() ? "no sum" : sums_.front().name);
    // A rank comes to a sum when its values are there, not when that is enqueued.
    while (come_ < sums_.size() && sums_[come_].ready->reached()) {
      ++come_;
      collectives_.begun.fetch_add(1, std::memory_order_relaxed);
    }
    while (come_ > 0 && sums_.front().done->reached()) {
      spare_.push_back(std::move(sums_.front()));
      sums_.pop_front();
      --come_;
      collectives_.done.fetch_add(1, std::memory_order_relaxed);
      waited_.reset();
    }
    if (sums_.empty()) return;
    // The oldest waits for the others from when it is its turn and this rank has done its own work.
    if (!waited_ && come_ > 0) waited_.emplace();
    if (waited_ && waited_->seconds() > connection_.deadline_seconds()) {
      throw connection_.give_up(sums_.front().name);
    }
  }

  static std::unique_ptr<CudaStream> make_stream(World& world, const NcclOptions& options) {
    std::unique_ptr<CudaStream> stream;
    run_agreed(world, [&] { stream = make_cuda_stream(options.device, CudaPriority::urgent); });
    return stream;
  }

  bool share_device_;
  CollectiveCounter& collectives_;
  std::unique_ptr<CudaStream> stream_;

  mutable std::mutex mutex_;  // guards all that follows
  Connection connection_;     // aborted after a failure
  std::optional<Error> failure_;
  std::deque<Sum> sums_;
  std::size_t come_ = 0;  // of them; these have this rank's values
  std::vector<Sum> spare_;
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
