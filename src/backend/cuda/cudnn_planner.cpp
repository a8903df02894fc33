#include "tutti/base/error.hpp"
#include "tutti/base/unique_handle.hpp"

#include "backend/cuda/convolution.hpp"
#include "backend/cuda/cudnn_graph.hpp"
#include "backend/cuda/plan_search.hpp"
#include "backend/cuda/runtime.hpp"

#include <fmt/format.h>

#include <map>
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
  CudnnPlan(std::shared_ptr<CudnnDevice> device, std::shared_ptr<const CudnnEngine> engine)
      : device_(std::move(device)), engine_(std::move(engine)) {}

  std::int64_t engine() const override { return engine_->choice().engine; }
  std::size_t scratch_bytes() const override { return engine_->scratch_bytes; }

  void run(CudaStream& stream, const ConvolutionTensors& tensors, void* scratch) override {
    CudnnDescriptor pack(CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR);
    pack.set(CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, std::vector{kInputTensor, kFilterTensor, kOutputTensor});
    pack.set(CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, std::vector{tensors.input, tensors.filters, tensors.output});
    pack.set(CUDNN_ATTR_VARIANT_PACK_WORKSPACE, scratch);
    pack.finalize();
    device_->execute(stream, engine_->plan, pack);
  }

 private:
  std::shared_ptr<CudnnDevice> device_;
  std::shared_ptr<const CudnnEngine> engine_;
};

class CudnnPlanner final : public ConvolutionPlanner {
 public:
  explicit CudnnPlanner(const CudaOptions& options)
      : options_(options),
        device_(std::make_shared<CudnnDevice>(options.device)),
        table_({convolution_library(), query_devices().devices.at(static_cast<std::size_t>(options.device)).name}),
        search_(options.device, options.use_graphs) {}

  std::unique_ptr<ConvolutionPlan> plan(ConvolutionPass pass, const ConvolutionShape& shape) override {
    const std::lock_guard lock(mutex_);
    std::shared_ptr<const CudnnEngine>& engine = engines_[describe(pass, shape)];
    if (!engine) engine = choose(pass, shape);
    return std::make_unique<CudnnPlan>(device_, engine);
  }

  std::string algorithm_cache() const override {
    const std::lock_guard lock(mutex_);
    return table_.text();
  }

  bool load_algorithm_cache(const std::string& lines) override {
    const std::lock_guard lock(mutex_);
    return table_.adopt(lines);
  }

  std::string search_summary() const override {
    const std::lock_guard lock(mutex_);
    return search_.summary();
  }

 private:
  std::shared_ptr<const CudnnEngine> choose(ConvolutionPass pass, const ConvolutionShape& shape) {
    const std::string description = describe(pass, shape);
    const CudnnGraph graph(*device_, pass, shape);
    if (const auto known = table_.find(description)) {
      if (auto engine = graph.engine(*known)) return std::make_shared<const CudnnEngine>(std::move(*engine));
    }
    const Stopwatch watch;
    const bool searches = options_.search_plans && search_.has_time();
    std::vector<std::shared_ptr<const CudnnEngine>> engines;
    for (CudnnEngine& engine : graph.engines(searches ? kMaxCandidates : 1))
      engines.push_back(std::make_shared<const CudnnEngine>(std::move(engine)));
    if (engines.empty()) {
      throw Error(ErrorSource::usage,
                  fmt::format("{} has no way to compute the convolution {}; try another --precision",
                              convolution_library(), description));
    }
    std::vector<std::unique_ptr<ConvolutionPlan>> plans;
    for (const auto& engine : engines) plans.push_back(std::make_unique<CudnnPlan>(device_, engine));
    const auto chosen = plans.size() > 1 ? engines[search_.fastest(shape, plans, watch)] : engines.front();
    table_.note(description, chosen->choice());
    return chosen;
  }

  CudaOptions options_;
  std::shared_ptr<CudnnDevice> device_;
  mutable std::mutex mutex_;
  EngineTable table_;
  PlanSearch search_;
  std::map<std::string, std::shared_ptr<const CudnnEngine>> engines_;  // by description
};

}  // namespace

std::unique_ptr<ConvolutionPlanner> make_convolution_planner(const CudaOptions& options) {
  return std::make_unique<CudnnPlanner>(options);
}

std::string convolution_library() { return fmt::format("cuDNN {}", query_devices().cudnn_version); }

}  // namespace tutti::cuda
