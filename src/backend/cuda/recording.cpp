#include "backend/cuda/recording.hpp"

#include "tutti/base/unique_handle.hpp"

#include "backend/cuda/check.hpp"
#include "backend/cuda/native.hpp"

namespace tutti::cuda {
namespace {

struct DestroyGraph {
  void operator()(cudaGraph_t graph) const noexcept { static_cast<void>(cudaGraphDestroy(graph)); }
};
struct DestroyExecutable {
  void operator()(cudaGraphExec_t graph) const noexcept { static_cast<void>(cudaGraphExecDestroy(graph)); }
};
using GraphHandle = UniqueHandle<cudaGraph_t, DestroyGraph>;
using ExecutableHandle = UniqueHandle<cudaGraphExec_t, DestroyExecutable>;

// A capture that was begun is ended whatever happens, so that the stream can be used again.
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

class GraphRecording final : public Recording {
 public:
  explicit GraphRecording(const GraphHandle& graph) {
    cudaGraphExec_t executable = nullptr;
    check(cudaGraphInstantiate(&executable, graph.get(), 0));
    executable_ = ExecutableHandle(executable);
  }

  void replay(Stream& stream) override {
    const CudaStream& cuda = as_cuda_stream(stream);
    use_cuda_device(cuda.device());
    check(cudaGraphLaunch(executable_.get(), native(cuda)));
  }

 private:
  ExecutableHandle executable_;
};

}  // namespace

std::unique_ptr<Recording> record(CudaStream& stream, const std::function<void()>& enqueue) {
  return std::make_unique<GraphRecording>(capture(stream, enqueue));
}

}  // namespace tutti::cuda
