#include "communicator.hpp"

#include "tutti/backend/cuda_stream.hpp"
#include "tutti/base/error.hpp"
#include "tutti/base/stopwatch.hpp"
#include "tutti/base/unique_handle.hpp"

#include "../patience.hpp"
#include "check.hpp"
#include "shared_device.hpp"

#include <fmt/format.h>

#include <deque>
#include <mutex>
#include <optional>
#include <span>
#include <vector>

namespace tutti::nccl {
namespace {

// Unlike destroying, aborting does not wait for other ranks, so it may be done in a destructor.
struct AbortCommunicator {
  void operator()(ncclComm_t communicator) const noexcept { static_cast<void>(ncclCommAbort(communicator)); }
};
using CommunicatorHandle = UniqueHandle<ncclComm_t, AbortCommunicator>;

// Who waits for the other ranks, and for how long.
struct Waiting {
  std::string who;  // "rank 1 on node3"
  double deadline_seconds = 0;

  Error failed(const std::string& where, ncclResult_t result) const {
    const char* const others = result == ncclRemoteError ? "; look at the last lines of the other ranks" : "";
    return Error(ErrorSource::nccl, fmt::format("{} stopped in {}: {}{}", who, where, text_of(result), others));
  }
  Error give_up(const std::string& where) const {
    return Error(
        ErrorSource::hang,
        fmt::format("{} gave up after {:g} s in {}: not all ranks came to it. Look for the one that is late or "
                    "gone: the oldest last line, a GPU that stands still (nvidia-smi), a node that is down; "
                    "--stall-timeout allows more time",
                    who, deadline_seconds, where));
  }
};

ncclResult_t state_of(ncclComm_t communicator) {
  ncclResult_t state = ncclSuccess;
  check(ncclCommGetAsyncError(communicator, &state));
  return state;
}

// What a call of a communicator that does not block has begun goes on in a thread of NCCL's, also the enqueueing of a
// sum on a stream. Until it is through, nothing else may be asked of the communicator or put on the stream.
void settle(ncclComm_t communicator, ncclResult_t result, const Waiting& waiting, const std::string& where) {
  const Stopwatch watch;
  for (Patience patience(kUntilMoved); result == ncclInProgress; patience.wait()) {
    if (watch.seconds() > waiting.deadline_seconds) throw waiting.give_up(where);
    result = state_of(communicator);
  }
  if (result != ncclSuccess) throw waiting.failed(where, result);
}

// Each step is voted on, so that a rank that fails alone does not leave the others waiting in the next.
CommunicatorHandle connect(World& world, const NcclOptions& options, const Waiting& waiting) {
  ncclUniqueId id{};
  run_agreed(world, [&] {
    use_cuda_device(options.device);
    if (options.share_device) prepare_shared_device(world);
    if (world.rank() == 0) check(ncclGetUniqueId(&id));
  });
  world.broadcast(std::as_writable_bytes(std::span(&id, 1)), 0);
  CommunicatorHandle handle;
  run_agreed(world, [&] {
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.blocking = 0;
    ncclComm_t communicator = nullptr;
    const ncclResult_t result = ncclCommInitRankConfig(&communicator, world.size(), id, world.rank(), &config);
    // Given up before the vote when it fails, so that the others hear of it at once.
    CommunicatorHandle connecting(communicator);
    settle(communicator, result, waiting, fmt::format("NCCL's connecting of {} ranks", world.size()));
    handle = std::move(connecting);
  });
  return handle;
}

ncclDataType_t nccl_type(const Tensor& values) {
  if (values.space != MemorySpace::cuda) throw Error(ErrorSource::internal, "NCCL is given memory of the host");
  if (values.type == ElementType::f32) return ncclFloat32;
  if (values.type == ElementType::i64) return ncclInt64;
  throw Error(ErrorSource::internal, fmt::format("sums of {} are not provided for", name_of(values.type)));
}

// A sum on its way.
struct Sum {
  std::unique_ptr<Event> ready;  // this rank's values are there
  std::unique_ptr<Event> done;
  std::string name;
};

class NcclCommunicator final : public Communicator {
 public:
  NcclCommunicator(World& world, const NcclOptions& options)
      : rank_(world.rank()),
        size_(world.size()),
        share_device_(options.share_device),
        waiting_{fmt::format("rank {} on {}", world.rank(), world.host()), options.deadline_seconds} {
    run_agreed(world, [&] { stream_ = make_cuda_stream(options.device, CudaPriority::urgent); });
    communicator_ = connect(world, options, waiting_);
  }

  int rank() const override { return rank_; }
  int size() const override { return size_; }
  std::string description() const override {
    return fmt::format("NCCL {}{}", version(), share_device_ ? ", ranks share a device" : "");
  }
  Buffer allocate(std::size_t bytes) override { return allocate_cuda(stream_->device(), bytes); }

  void all_reduce_sum(const Tensor& values, Stream& stream) override {
    const ncclDataType_t type = nccl_type(values);
    CudaStream& compute = as_cuda_stream(stream);
    if (values.elements() == 0) return;
    // Kernels that compute would keep the other ranks' sums off a shared device, and theirs this one's.
    if (share_device_) compute.synchronize();
    {
      const std::lock_guard lock(mutex_);
      guarded([&] { enqueue(values, type, compute); });
    }
    for (Patience patience(kUntilMoved); share_device_ && progress(); patience.wait()) continue;
  }

  void share(const SharedSum&, Stream&) override { throw Error(ErrorSource::internal, "unfinished"); }
  void sum_at_first(const Tensor&, Stream&) override { throw Error(ErrorSource::internal, "unfinished"); }
  void spread_from_first(const Tensor&, Stream&) override { throw Error(ErrorSource::internal, "unfinished"); }

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
    communicator_.reset();
  }

  void enqueue(const Tensor& values, ncclDataType_t type, CudaStream& compute) {
    advance();
    Sum sum = spare_sum();
    sum.name = fmt::format("sum {} of {} bytes", ++begun_, values.bytes());
    compute.record(*sum.ready);
    stream_->follow(*sum.ready);
    use_cuda_device(stream_->device());
    settle(communicator_.get(),
           ncclAllReduce(values.data, values.data, static_cast<std::size_t>(values.elements()), type, ncclSum,
                         communicator_.get(), static_cast<cudaStream_t>(stream_->native())),
           waiting_, sum.name);
    stream_->record(*sum.done);
    sums_.push_back(std::move(sum));
    // What a ring sends per rank; NCCL does not tell what its choice of algorithm did.
    const auto others = static_cast<std::uint64_t>(size_ - 1);
    bytes_sent_ += 2 * others * values.bytes() / static_cast<std::uint64_t>(size_);
  }

  Sum spare_sum() {
    if (spare_.empty()) {
      return {.ready = make_cuda_event(stream_->device()), .done = make_cuda_event(stream_->device()), .name = {}};
    }
    Sum sum = std::move(spare_.back());
    spare_.pop_back();
    return sum;
  }

  // Failures of other ranks and of the network arrive while work is under way, and only here.
  void advance() {
    const ncclResult_t state = state_of(communicator_.get());
    if (state != ncclSuccess && state != ncclInProgress) {
      throw waiting_.failed(sums_.empty() ? "no sum" : sums_.front().name, state);
    }
    while (!sums_.empty() && sums_.front().done->reached()) {
      spare_.push_back(std::move(sums_.front()));
      sums_.pop_front();
      waited_.reset();
    }
    if (sums_.empty()) return;
    // The oldest waits for the others from when it is its turn and this rank has done its own work.
    if (!waited_ && sums_.front().ready->reached()) waited_.emplace();
    if (waited_ && waited_->seconds() > waiting_.deadline_seconds) throw waiting_.give_up(sums_.front().name);
  }

  int rank_;
  int size_;
  bool share_device_;
  Waiting waiting_;
  std::unique_ptr<CudaStream> stream_;

  mutable std::mutex mutex_;         // guards all that follows
  CommunicatorHandle communicator_;  // gone after a failure
  std::optional<Error> failure_;
  std::deque<Sum> sums_;
  std::vector<Sum> spare_;
  std::optional<Stopwatch> waited_;
  std::uint64_t begun_ = 0;
  std::uint64_t bytes_sent_ = 0;
};

}  // namespace

std::string version() {
  int number = 0;
  check(ncclGetVersion(&number));
  return fmt::format("{}.{}.{}", number / 10000, number % 10000 / 100, number % 100);
}

std::unique_ptr<Communicator> make_communicator(World& world, const NcclOptions& options) {
  return std::make_unique<NcclCommunicator>(world, options);
}

}  // namespace tutti::nccl
