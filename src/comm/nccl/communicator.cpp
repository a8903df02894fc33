#include "communicator.hpp"

#include "tutti/backend/cuda_stream.hpp"
#include "tutti/base/error.hpp"
#include "tutti/base/unique_handle.hpp"

#include "check.hpp"

#include <fmt/format.h>

namespace tutti::nccl {
namespace {

// Unlike destroying, aborting does not wait for other ranks, so it may be done in a destructor.
struct AbortCommunicator {
  void operator()(ncclComm_t communicator) const noexcept { static_cast<void>(ncclCommAbort(communicator)); }
};
using CommunicatorHandle = UniqueHandle<ncclComm_t, AbortCommunicator>;

// Each step is voted on, so that a rank that fails alone does not leave the others waiting in the next.
CommunicatorHandle connect(World& world, int device) {
  ncclUniqueId id{};
  run_agreed(world, [&] {
    use_cuda_device(device);
    if (world.rank() == 0) check(ncclGetUniqueId(&id));
  });
  world.broadcast(std::as_writable_bytes(std::span(&id, 1)), 0);
  CommunicatorHandle handle;
  run_agreed(world, [&] {
    ncclComm_t communicator = nullptr;
    check(ncclCommInitRank(&communicator, world.size(), id, world.rank()));
    handle = CommunicatorHandle(communicator);
  });
  return handle;
}

ncclDataType_t nccl_type(ElementType type) {
  if (type == ElementType::f32) return ncclFloat32;
  if (type == ElementType::i64) return ncclInt64;
  throw Error(ErrorSource::internal, fmt::format("sums of {} are not provided for", name_of(type)));
}

class NcclCommunicator final : public Communicator {
 public:
  NcclCommunicator(World& world, int device)
      : rank_(world.rank()),
        size_(world.size()),
        stream_(make_cuda_stream(device)),
        communicator_(connect(world, device)) {}

  int rank() const override { return rank_; }
  int size() const override { return size_; }
  std::string description() const override { return fmt::format("NCCL {}", version()); }
  Buffer allocate(std::size_t bytes) override { return allocate_cuda(stream_->device(), bytes); }

  void all_reduce_sum(const Tensor& values, Stream& stream) override {
    if (values.space != MemorySpace::cuda) {
      throw Error(ErrorSource::internal, "NCCL is given memory of the host");
    }
    stream_->wait_for(as_cuda_stream(stream));
    check(ncclAllReduce(values.data, values.data, static_cast<std::size_t>(values.elements()), nccl_type(values.type),
                        ncclSum, communicator_.get(), static_cast<cudaStream_t>(stream_->native())));
    // What a ring sends per rank; NCCL does not tell what its choice of algorithm did.
    const auto others = static_cast<std::uint64_t>(size_ - 1);
    bytes_sent_ += 2 * others * values.bytes() / static_cast<std::uint64_t>(size_);
  }

  bool progress() override {
    refuse_failed_peers();
    return !stream_->idle();
  }

  void finish(Stream& stream) override {
    refuse_failed_peers();
    as_cuda_stream(stream).wait_for(*stream_);
  }

  void abandon() noexcept override { communicator_.reset(); }

  std::uint64_t bytes_sent() const override { return bytes_sent_; }

 private:
  // Failures of other ranks and of the network arrive while work is under way, and only here.
  void refuse_failed_peers() const {
    ncclResult_t state = ncclSuccess;
    check(ncclCommGetAsyncError(communicator_.get(), &state));
    check(state);
  }

  int rank_;
  int size_;
  std::unique_ptr<CudaStream> stream_;
  CommunicatorHandle communicator_;
  std::uint64_t bytes_sent_ = 0;
};

}  // namespace

std::string version() {
  int number = 0;
  check(ncclGetVersion(&number));
  return fmt::format("{}.{}.{}", number / 10000, number % 10000 / 100, number % 100);
}

std::unique_ptr<Communicator> make_communicator(World& world, const NcclOptions& options) {
  return std::make_unique<NcclCommunicator>(world, options.device);
}

}  // namespace tutti::nccl
