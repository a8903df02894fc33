#include "tutti/backend/cuda_stream.hpp"
#include "tutti/base/error.hpp"
#include "tutti/base/unique_handle.hpp"

#include "check.hpp"

#include <fmt/format.h>

namespace tutti {
namespace {

using cuda::check;

struct DestroyStream {
  void operator()(cudaStream_t stream) const noexcept { static_cast<void>(cudaStreamDestroy(stream)); }
};
struct DestroyEvent {
  void operator()(cudaEvent_t event) const noexcept { static_cast<void>(cudaEventDestroy(event)); }
};
using StreamHandle = UniqueHandle<cudaStream_t, DestroyStream>;
using EventHandle = UniqueHandle<cudaEvent_t, DestroyEvent>;

StreamHandle create_stream(int device) {
  use_cuda_device(device);
  cudaStream_t stream = nullptr;
  check(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  return StreamHandle(stream);
}

EventHandle create_event() {
  cudaEvent_t event = nullptr;
  check(cudaEventCreateWithFlags(&event, cudaEventDisableTiming));
  return EventHandle(event);
}

class OwnedCudaStream final : public CudaStream {
 public:
  explicit OwnedCudaStream(int device) : device_(device), stream_(create_stream(device)), event_(create_event()) {}

  int device() const override { return device_; }
  void* native() const override { return stream_.get(); }

  void synchronize() override {
    use_cuda_device(device_);
    check(cudaStreamSynchronize(stream_.get()));
  }

  void wait_for(const CudaStream& other) override {
    if (other.device() != device_) {
      throw Error(ErrorSource::internal,
                  fmt::format("a stream of device {} waits for one of device {}", device_, other.device()));
    }
    use_cuda_device(device_);
    check(cudaEventRecord(event_.get(), static_cast<cudaStream_t>(other.native())));
    check(cudaStreamWaitEvent(stream_.get(), event_.get(), 0));
  }

  bool idle() override {
    use_cuda_device(device_);
    const cudaError_t status = cudaStreamQuery(stream_.get());
    if (status == cudaErrorNotReady) {
      static_cast<void>(cudaGetLastError());
      return false;
    }
    check(status);
    return true;
  }

 private:
  int device_;
  StreamHandle stream_;
  EventHandle event_;
};

}  // namespace

CudaStream& as_cuda_stream(Stream& stream) {
  auto* const found = dynamic_cast<CudaStream*>(&stream);
  if (found == nullptr) throw Error(ErrorSource::internal, "work for a GPU is put on another processor's stream");
  return *found;
}

void use_cuda_device(int device) { check(cudaSetDevice(device)); }

std::unique_ptr<CudaStream> make_cuda_stream(int device) { return std::make_unique<OwnedCudaStream>(device); }

Buffer allocate_cuda(int device, std::size_t bytes) {
  use_cuda_device(device);
  void* data = nullptr;
  check(cudaMalloc(&data, bytes));
  Buffer buffer(data, bytes, MemorySpace::cuda, [](void* block) { static_cast<void>(cudaFree(block)); });
  if (bytes > 0) check(cudaMemset(data, 0, bytes));
  // Our streams do not wait for the default one, on which the zeros are written.
  check(cudaDeviceSynchronize());
  return buffer;
}

}  // namespace tutti
