#include "tutti/backend/cuda_stream.hpp"
#include "tutti/base/error.hpp"
#include "tutti/base/unique_handle.hpp"

#include "backend/cuda/runtime.hpp"

#include <fmt/format.h>

#include <chrono>
#include <thread>
#include <utility>
#include <vector>

namespace tutti {
namespace {

using cuda::check;
using cuda::native;

using StreamHandle = UniqueHandle<cudaStream_t, cuda::ReleaseBy<cudaStreamDestroy>>;
using EventHandle = UniqueHandle<cudaEvent_t, cuda::ReleaseBy<cudaEventDestroy>>;
using GraphHandle = UniqueHandle<cudaGraph_t, cuda::ReleaseBy<cudaGraphDestroy>>;
using ExecutableHandle = UniqueHandle<cudaGraphExec_t, cuda::ReleaseBy<cudaGraphExecDestroy>>;

StreamHandle create_stream(int device, CudaPriority priority) {
  use_cuda_device(device);
  int least = 0;
  int greatest = 0;
  check(cudaDeviceGetStreamPriorityRange(&least, &greatest));
  cudaStream_t stream = nullptr;
  check(cudaStreamCreateWithPriority(&stream, cudaStreamNonBlocking,
                                     priority == CudaPriority::urgent ? greatest : least));
  return StreamHandle(stream);
}

EventHandle create_event(unsigned flags) {
  cudaEvent_t event = nullptr;
  check(cudaEventCreateWithFlags(&event, flags));
  return EventHandle(event);
}

// Whether the work is done. Throws its error.
bool is_done(cudaError_t status) {
  if (status == cudaErrorNotReady) {
    static_cast<void>(cudaGetLastError());
    return false;
  }
  check(status);
  return true;
}

class CudaEvent final : public Event {
 public:
  explicit CudaEvent(int device, unsigned flags = cudaEventDisableTiming) : device_(device) {
    use_cuda_device(device);
    event_ = create_event(flags);
  }
  int device() const { return device_; }
  cudaEvent_t native() const { return event_.get(); }
  bool reached() override {
    use_cuda_device(device_);
    return is_done(cudaEventQuery(event_.get()));
  }

  double seconds_since(const Event& earlier) override;

 private:
  int device_;
  EventHandle event_;
};

template <class E>
auto& as_cuda_event(E& event) {
  using Found = std::conditional_t<std::is_const_v<E>, const CudaEvent, CudaEvent>;
  auto* const found = dynamic_cast<Found*>(&event);
  if (found == nullptr) throw Error(ErrorSource::internal, "an event of another backend was given to a CUDA stream");
  return *found;
}

double CudaEvent::seconds_since(const Event& earlier) {
  use_cuda_device(device_);
  float milliseconds = 0;
  check(cudaEventElapsedTime(&milliseconds, as_cuda_event(earlier).native(), native()));
  return static_cast<double>(milliseconds) / 1e3;
}

// Replaces CUDA's blocking calls, which would never return if a collective's peers are gone.
class Backoff {
 public:
  void wait() {
    if (++turns_ < kSpins) return;
    std::this_thread::sleep_for(std::chrono::microseconds(turns_ < kShortNaps ? 10 : 200));
  }

 private:
  static constexpr int kSpins = 2000;
  static constexpr int kShortNaps = 3000;
  int turns_ = 0;
};

class OwnedCudaStream final : public CudaStream {
 public:
  OwnedCudaStream(int device, CudaPriority priority)
      : device_(device), stream_(create_stream(device, priority)), last_(device) {}

  int device() const override { return device_; }
  void* native() const override { return stream_.get(); }

  void synchronize() override {
    record(last_);
    await(last_);
  }

  void record(Event& event) override {
    use_cuda_device(device_);
    check(cudaEventRecord(as_cuda_event(event).native(), stream_.get()));
  }

  void wait_event(const Event& event) override {
    use_cuda_device(device_);
    check(cudaStreamWaitEvent(stream_.get(), as_cuda_event(event).native(), 0));
  }

  void await(Event& event) override {
    for (Backoff backoff; !event.reached(); backoff.wait()) {
      if (wait_callback_) wait_callback_();
    }
  }

  void set_wait_callback(std::function<void()> callback) override { wait_callback_ = std::move(callback); }

  void wait_for(const CudaStream& other) override {
    if (other.device() != device_) {
      throw Error(ErrorSource::internal,
                  fmt::format("a stream of device {} waits for one of device {}", device_, other.device()));
    }
    use_cuda_device(device_);
    check(cudaEventRecord(last_.native(), static_cast<cudaStream_t>(other.native())));
    wait_event(last_);
  }

  void* scratch(std::size_t bytes) override {
    if (scratch_.empty() || scratch_.back().bytes() < bytes) {
      scratch_.push_back(allocate_cuda(device_, bytes, CudaMemory::scratch));
    }
    return scratch_.back().data();
  }

 private:
  int device_;
  StreamHandle stream_;
  CudaEvent last_;
  std::vector<Buffer> scratch_;  // captured graphs may still use the smaller ones
  std::function<void()> wait_callback_;
};

// Ends the capture on errors too, so that the stream stays usable.
GraphHandle capture(CudaStream& stream, const std::function<void()>& enqueue) {
  use_cuda_device(stream.device());
  check(cudaStreamBeginCapture(native(stream), cudaStreamCaptureModeThreadLocal));
  cudaGraph_t graph = nullptr;
  try {
    enqueue();
  } catch (...) {
    static_cast<void>(cudaStreamEndCapture(native(stream), &graph));
    static_cast<void>(cudaGetLastError());
    if (graph != nullptr) static_cast<void>(cudaGraphDestroy(graph));
    throw;
  }
  check(cudaStreamEndCapture(native(stream), &graph));
  return GraphHandle(graph);
}

class CudaGraph final : public Graph {
 public:
  explicit CudaGraph(const GraphHandle& graph) {
    cudaGraphExec_t executable = nullptr;
    check(cudaGraphInstantiate(&executable, graph.get(), 0));
    executable_ = ExecutableHandle(executable);
  }

  void launch(Stream& stream) override {
    const CudaStream& cuda = as_cuda_stream(stream);
    use_cuda_device(cuda.device());
    check(cudaGraphLaunch(executable_.get(), native(cuda)));
  }

 private:
  ExecutableHandle executable_;
};

}  // namespace

CudaStream& as_cuda_stream(Stream& stream) {
  auto* const found = dynamic_cast<CudaStream*>(&stream);
  if (found == nullptr) throw Error(ErrorSource::internal, "a stream of another backend was given to the cuda backend");
  return *found;
}

void use_cuda_device(int device) { check(cudaSetDevice(device)); }

std::unique_ptr<CudaStream> make_cuda_stream(int device, CudaPriority priority) {
  return std::make_unique<OwnedCudaStream>(device, priority);
}

std::unique_ptr<Event> make_cuda_event(int device) { return std::make_unique<CudaEvent>(device); }
std::unique_ptr<Event> make_timed_cuda_event(int device) {
  return std::make_unique<CudaEvent>(device, cudaEventDefault);
}

std::unique_ptr<Graph> capture_cuda_graph(CudaStream& stream, const std::function<void()>& enqueue) {
  return std::make_unique<CudaGraph>(capture(stream, enqueue));
}

}  // namespace tutti
