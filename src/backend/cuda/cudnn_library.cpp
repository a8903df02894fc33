#include "tutti/base/unique_handle.hpp"

#include "backend/cuda/convolution.hpp"
#include "backend/cuda/cudnn_graph.hpp"
#include "backend/cuda/runtime.hpp"

#include <fmt/format.h>

#include <mutex>
#include <utility>

namespace tutti::cuda {
namespace {

// cuDNN on one GPU. Only one thread at a time may use its handle.
class CudnnDevice final : public CudnnTarget {
 public:
  explicit CudnnDevice(int device) {
    use_cuda_device(device);
    cudnnHandle_t handle = nullptr;
    check(cudnnCreate(&handle));
    handle_ = decltype(handle_)(handle);
  }

  void apply_to(CudnnDescriptor& descriptor) const override {
    if (descriptor.type() == CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR) {
      descriptor.set(CUDNN_ATTR_OPERATIONGRAPH_HANDLE, handle_.get());
    } else if (descriptor.type() == CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR) {
      descriptor.set(CUDNN_ATTR_EXECUTION_PLAN_HANDLE, handle_.get());
    }
  }

  void execute(const CudaStream& stream, const CudnnDescriptor& plan, const CudnnDescriptor& tensors) {
    const std::lock_guard lock(mutex_);
    check(cudnnSetStream(handle_.get(), native(stream)));
    check(cudnnBackendExecute(handle_.get(), plan.get(), tensors.get()));
  }

 private:
  UniqueHandle<cudnnHandle_t, ReleaseBy<cudnnDestroy>> handle_;
  std::mutex mutex_;
};

class CudnnPlan final : public ConvolutionPlan {
 public:
  CudnnPlan(std::shared_ptr<CudnnDevice> device, CudnnEngine engine)
      : device_(std::move(device)), engine_(std::move(engine)) {}

  EngineChoice choice() const override { return engine_.choice(); }
  std::size_t scratch_bytes() const override { return engine_.scratch_bytes; }

  void run(CudaStream& stream, const ConvolutionTensors& tensors, void* scratch) override {
    CudnnDescriptor pack(CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR);
    pack.set(CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, std::vector{kInputTensor, kFilterTensor, kOutputTensor});
    pack.set(CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, std::vector{tensors.input, tensors.filters, tensors.output});
    pack.set(CUDNN_ATTR_VARIANT_PACK_WORKSPACE, scratch);
    pack.finalize();
    device_->execute(stream, engine_.plan, pack);
  }

 private:
  std::shared_ptr<CudnnDevice> device_;
  CudnnEngine engine_;
};

class CudnnLibrary final : public ConvolutionLibrary {
 public:
  explicit CudnnLibrary(int device) : device_(std::make_shared<CudnnDevice>(device)) {}

  ConvolutionPlans propose(ConvolutionPass pass, const ConvolutionShape& shape, std::size_t most) override {
    ConvolutionPlans plans;
    for (CudnnEngine& engine : CudnnGraph(*device_, pass, shape).engines(most))
      plans.push_back(std::make_shared<CudnnPlan>(device_, std::move(engine)));
    return plans;
  }

  std::shared_ptr<ConvolutionPlan> build(ConvolutionPass pass, const ConvolutionShape& shape,
                                         const EngineChoice& choice) override {
    auto engine = CudnnGraph(*device_, pass, shape).engine(choice);
    return engine ? std::make_shared<CudnnPlan>(device_, std::move(*engine)) : nullptr;
  }

 private:
  std::shared_ptr<CudnnDevice> device_;
};

}  // namespace

std::unique_ptr<ConvolutionLibrary> make_convolution_library(int device) {
  return std::make_unique<CudnnLibrary>(device);
}

std::string convolution_library() { return fmt::format("cuDNN {}", query_devices().cudnn_version); }

}  // namespace tutti::cuda
