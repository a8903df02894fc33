#include "backend/cuda/backend.hpp"

#include "tutti/base/error.hpp"

#include "backend/cuda/check.hpp"
#include "backend/cuda/convert.hpp"
#include "backend/cuda/converting_layer.hpp"
#include "backend/cuda/convolution.hpp"
#include "backend/cuda/device_query.hpp"
#include "backend/cuda/digest.hpp"
#include "backend/cuda/fixed_point.hpp"
#include "backend/cuda/flat.hpp"
#include "backend/cuda/format.hpp"
#include "backend/cuda/image_store.hpp"
#include "backend/cuda/layers.hpp"
#include "backend/cuda/profiler_range.hpp"
#include "backend/cuda/recording.hpp"
#include "backend/cuda/weights.hpp"

#include <fmt/format.h>

namespace tutti::cuda {
namespace {

CudaDevice device_at(int device) {
  const CudaInventory inventory = query_devices();
  const std::size_t count = inventory.devices.size();
  if (device < 0 || static_cast<std::size_t>(device) >= count) {
    throw Error(ErrorSource::usage,
                inventory.why_none.empty()
                    ? fmt::format("GPU {} is asked for, but this process sees {} of them", device, count)
                    : fmt::format("no GPU can be used: {}; choose --device cpu", inventory.why_none));
  }
  return inventory.devices[static_cast<std::size_t>(device)];
}

ElementType element_type(Precision precision) {
  return precision == Precision::bf16 ? ElementType::bf16 : ElementType::f32;
}

class CudaBackend final : public Backend {
 public:
  explicit CudaBackend(const CudaOptions& options)
      : found_(device_at(options.device)),
        records_(options.record),
        planner_(make_convolution_planner({.device = options.device, .search = options.search_plans})),
        processor_{.device = options.device,
                   .precision = options.precision,
                   .type = element_type(options.precision),
                   .planner = *planner_} {}

  std::string description() const override {
    return fmt::format("cuda: {}, {:.0f} GiB, {}", found_.name, static_cast<double>(found_.memory_bytes) / 0x1p30,
                       convolution_library());
  }
  MemorySpace memory_space() const override { return MemorySpace::cuda; }
  void enter_compute_thread(int) override { use_cuda_device(processor_.device); }

  Buffer allocate(std::size_t bytes) override { return allocate_cuda(processor_.device, bytes); }
  Buffer allocate_staging(std::size_t bytes) override { return allocate_pinned(processor_.device, bytes); }
  std::unique_ptr<Stream> make_stream() override { return make_cuda_stream(processor_.device); }
  std::unique_ptr<Event> make_event() override { return make_cuda_event(processor_.device); }
  std::unique_ptr<Event> make_timed_event() override { return make_timed_cuda_event(processor_.device); }
  void begin_range(const char* name) override { range_.begin(name); }
  std::unique_ptr<ImageStore> hold_images(const HeldImages& images) override {
    return cuda::hold_images(processor_.device, images);
  }
  std::unique_ptr<Recording> record(Stream& stream, const std::function<void()>& enqueue) override {
    return records_ ? cuda::record(as_cuda_stream(stream), enqueue) : nullptr;
  }
  std::string choices() const override { return planner_->choices(); }
  bool adopt_choices(const std::string& lines) override { return planner_->adopt_choices(lines); }

  void copy(Stream& stream, const Tensor& to, const Tensor& from) override {
    cuda::copy(as_cuda_stream(stream), to, from);
  }
  void fill_zero(Stream& stream, const Tensor& tensor) override { cuda::fill_zero(as_cuda_stream(stream), tensor); }
  void add(Stream& stream, const Tensor& to, const Tensor& from) override {
    cuda::add(as_cuda_stream(stream), to, from);
  }
  void blend(Stream& stream, const Tensor& to, const Tensor& from, float share) override {
    cuda::blend(as_cuda_stream(stream), to, from, share);
  }
  void to_fixed_point(Stream& stream, const FixedPointGrid& grid, const ToFixedPoint& request) override {
    cuda::to_fixed_point(as_cuda_stream(stream), grid, request);
  }
  void from_fixed_point(Stream& stream, const FixedPointGrid& grid, const FromFixedPoint& request) override {
    cuda::from_fixed_point(as_cuda_stream(stream), grid, request);
  }
  void find_not_finite(Stream& stream, const NotFiniteSearch& search) override {
    cuda::find_not_finite(as_cuda_stream(stream), search);
  }
  void sgd_step(Stream& stream, const SgdStep& step) override { cuda::sgd_step(as_cuda_stream(stream), step); }
  void adamw_step(Stream& stream, const AdamWStep& step) override { cuda::adamw_step(as_cuda_stream(stream), step); }
  void sum_squares(Stream& stream, std::span<const Tensor> tensors, const Tensor& sums) override {
    cuda::sum_squares(as_cuda_stream(stream), tensors, sums);
  }
  void sum_runs(Stream& stream, const Tensor& values, const Tensor& ends, const Tensor& sums) override {
    cuda::sum_runs(as_cuda_stream(stream), values, ends, sums);
  }
  void clip_factor(Stream& stream, const Tensor& squares, double most, const Tensor& factor) override {
    cuda::clip_factor(as_cuda_stream(stream), squares, most, factor);
  }
  void trust_factors(Stream& stream, const TrustFactors& request) override {
    cuda::trust_factors(as_cuda_stream(stream), request);
  }
  void add_digests(Stream& stream, std::span<const DigestedTensor> tensors, const Tensor& digests) override {
    cuda::add_digests(as_cuda_stream(stream), tensors, digests);
  }

  ActivationSpec plain_activation(const Shape& shape) override { return plain_activation_of(shape); }
  void to_plain(Stream& stream, const ActivationSpec& activation, const void* from, const Tensor& to) override {
    if (is_plain(activation)) return copy(stream, to, {const_cast<void*>(from), to.shape, to.type, to.space});
    cuda::to_plain(as_cuda_stream(stream), activation, from, static_cast<float*>(to.data));
  }
  void from_plain(Stream& stream, const ActivationSpec& activation, const Tensor& from, void* to) override {
    if (is_plain(activation)) return copy(stream, {to, from.shape, from.type, from.space}, from);
    cuda::from_plain(as_cuda_stream(stream), activation, static_cast<const float*>(from.data), to);
  }

  std::unique_ptr<LayerWeights> make_weights(const LayerSpec& spec, std::span<const Tensor> values) override {
    return cuda::make_weights(processor_, spec, values);
  }
  void refresh(Stream& stream, std::span<LayerWeights* const> layers) override {
    CudaWeights::refresh(as_cuda_stream(stream), layers);
  }
  std::unique_ptr<Layer> make_layer(const LayerSpec& spec, const LayerRequest& request) override {
    if (request.input.shape.rank() < 2 || request.input.shape[0] < 1) {
      throw Error(ErrorSource::internal, fmt::format("a plan of {} needs one sample or more, not an input of {}",
                                                     type_name(spec), request.input.shape.text()));
    }
    const auto make_within = [&](const LayerRequest& within) {
      return std::visit([&](const auto& layer) { return make(processor_, layer, within); }, spec);
    };
    const bool takes_plain = is_plain(request.input) || (takes_residual(spec) && is_plain(request.residual));
    return takes_plain ? make_converting_layer(processor_, request, make_within) : make_within(request);
  }
  std::unique_ptr<LossLayer> make_softmax_loss(const ActivationSpec& logits, double smoothing) override {
    return cuda::make_softmax_loss(processor_, logits, smoothing);
  }

 private:
  CudaDevice found_;
  bool records_;
  std::unique_ptr<ConvolutionPlanner> planner_;
  Processor processor_;
  ProfilerRange range_;
};

}  // namespace

std::unique_ptr<Backend> make_backend(const CudaOptions& options) { return std::make_unique<CudaBackend>(options); }

}  // namespace tutti::cuda
