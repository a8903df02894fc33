#pragma once
// The backend interface for one GPU. Members that launch kernels are defined next to these: vector operations in
// flat.cu, fixed_point.cu and reductions.cu, images in image_store.cu, plain activations in convert.cu.

#include "tutti/backend/backend.hpp"
#include "tutti/backend/cuda_library.hpp"

#include "backend/cuda/layers.hpp"
#include "backend/cuda/plan_search.hpp"

#include <atomic>
#include <functional>
#include <memory>
#include <string>

namespace tutti::cuda {

class CudaBackend final : public Backend {
 public:
  static constexpr std::size_t kSmallBytes = 64;

  explicit CudaBackend(const CudaOptions& options);
  CudaBackend(const CudaBackend&) = delete;
  CudaBackend& operator=(const CudaBackend&) = delete;
  ~CudaBackend() override;

  std::string description() const override;
  MemorySpace memory_space() const override { return MemorySpace::cuda; }
  void enter_compute_thread(int) override { use_cuda_device(processor_.device); }

  Buffer allocate(std::size_t bytes) override { return allocate_cuda(processor_.device, bytes); }
  Buffer allocate_staging(std::size_t bytes) override { return allocate_pinned(processor_.device, bytes); }
  std::unique_ptr<Stream> make_stream() override { return make_cuda_stream(processor_.device); }
  std::unique_ptr<Event> make_event() override { return make_cuda_event(processor_.device); }
  std::unique_ptr<Event> make_timed_event() override { return make_timed_cuda_event(processor_.device); }
  void begin_range(const char* name) override;
  std::unique_ptr<ImageStore> upload_dataset(const ImageSet& images) override;
  std::unique_ptr<Graph> capture(Stream& stream, const std::function<void()>& enqueue) override;
  std::string search_summary() const { return planner_.search_summary(); }
  std::string algorithm_cache() const override { return planner_.algorithm_cache(); }
  bool load_algorithm_cache(const std::string& lines) override { return planner_.load_algorithm_cache(lines); }

  void copy(Stream& stream, const Tensor& to, const Tensor& from) override;
  void fill_zero(Stream& stream, const Tensor& tensor) override;
  void add(Stream& stream, const Tensor& to, const Tensor& from) override {
    add_on_cuda(as_cuda_stream(stream), to, from);
  }
  void blend(Stream& stream, const Tensor& to, const Tensor& from, float share) override;
  void convert(Stream& stream, const Tensor& to, const Tensor& from) override;
  void to_fixed_point(Stream& stream, const FixedPointGrid& grid, const ToFixedPoint& request) override;
  void from_fixed_point(Stream& stream, const FixedPointGrid& grid, const FromFixedPoint& request) override;
  void find_not_finite(Stream& stream, const NotFiniteSearch& search) override {
    find_all_not_finite(stream, {&search, 1});
  }
  void sgd_step(Stream& stream, const SgdStep& step) override { sgd_steps(stream, {&step, 1}); }
  void adamw_step(Stream& stream, const AdamWStep& step) override { adamw_steps(stream, {&step, 1}); }
  void find_all_not_finite(Stream& stream, std::span<const NotFiniteSearch> searches) override;
  void sgd_steps(Stream& stream, std::span<const SgdStep> steps) override;
  void adamw_steps(Stream& stream, std::span<const AdamWStep> steps) override;
  void sum_squares(Stream& stream, std::span<const Tensor> tensors, const Tensor& sums) override;
  void sum_runs(Stream& stream, const Tensor& values, const Tensor& ends, const Tensor& sums) override;
  void clip_factor(Stream& stream, const Tensor& squares, double max_norm, const Tensor& factor) override;
  void trust_factors(Stream& stream, const TrustFactors& request) override;
  void add_digests(Stream& stream, std::span<const DigestedTensor> tensors, const Tensor& digests) override;

  ActivationSpec plain_activation(const Shape& shape) override { return plain_activation_of(shape); }
  void to_plain(Stream& stream, const ActivationSpec& activation, const void* from, const Tensor& to) override;

  std::unique_ptr<LayerWeights> make_weights(const LayerSpec& spec, std::span<const Tensor> values) override;
  void refresh(Stream& stream, std::span<LayerWeights* const> layers) override;
  std::unique_ptr<UnfinishedGradients> make_unfinished_gradients() override;
  void update(Stream& stream, const UnfinishedUpdate& update, std::span<const SgdStep> steps) override;
  void update(Stream& stream, const UnfinishedUpdate& update, std::span<const AdamWStep> steps) override;
  std::unique_ptr<Layer> make_layer(const LayerSpec& spec, const LayerRequest& request) override;
  std::unique_ptr<LossLayer> make_softmax_loss(const ActivationSpec& logits, const LossOptions& options) override;

 private:
  // The bytes travel as an argument of a kernel. Asynchronous.
  static void write_small(CudaStream& stream, const Tensor& to, const void* from);

  CudaDevice device_;
  std::atomic<bool> uses_graphs_;
  std::function<void(const std::string&)> warn_;
  ConvolutionPlanner planner_;
  Processor processor_;
  bool in_range_ = false;  // a profiler range is open
};

}  // namespace tutti::cuda
