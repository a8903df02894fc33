#include "tutti/backend/backend.hpp"

#include "tutti/backend/host_memory.hpp"

#include "backend/cpu/flat.hpp"
#include "backend/cpu/layers.hpp"
#include "backend/cpu/library.hpp"
#include "backend/cpu/staging.hpp"
#include "backend/cpu/weights.hpp"
#include "backend/requests.hpp"

namespace tutti {
namespace {

class CpuBackend final : public Backend {
 public:
  CpuBackend(Precision precision, Convolutions convolutions)
      : engine_(dnnl::engine::kind::cpu, 0),
        processor_{engine_, cpu::compute_type(precision), convolutions == Convolutions::tiled} {}

  std::string description() const override {
    return fmt::format("cpu: {}, {}, {}", cpu::instruction_set(), cpu::library_version(), cpu::threading_library());
  }
  MemorySpace memory_space() const override { return MemorySpace::host; }
  void enter_compute_thread(int threads) override { cpu::set_thread_environment(threads); }

  Buffer allocate(std::size_t bytes) override { return allocate_host(bytes); }
  std::unique_ptr<Stream> make_stream() override {
    return cpu::check([] { return "making a stream"; }, [&] { return std::make_unique<cpu::CpuStream>(engine_); });
  }

  void copy(Stream&, const Tensor& to, const Tensor& from) override { cpu::copy(to, from); }
  void fill_zero(Stream&, const Tensor& tensor) override { cpu::fill_zero(tensor); }
  void add(Stream&, const Tensor& to, const Tensor& from) override { cpu::add(to, from); }
  void blend(Stream&, const Tensor& to, const Tensor& from, float share) override { cpu::blend(to, from, share); }
  void to_fixed_point(Stream&, const FixedPointGrid& grid, const ToFixedPoint& request) override {
    cpu::to_fixed_point(grid, request);
  }
  void from_fixed_point(Stream&, const FixedPointGrid& grid, const FromFixedPoint& request) override {
    cpu::from_fixed_point(grid, request);
  }
  void sum_runs(Stream&, const Tensor& values, const Tensor& ends, const Tensor& sums) override {
    cpu::sum_runs(values, ends, sums);
  }
  void find_not_finite(Stream&, const NotFiniteSearch& search) override { cpu::find_not_finite(search); }
  void sgd_step(Stream&, const SgdStep& step) override { cpu::sgd_step(step); }
  void adamw_step(Stream&, const AdamWStep& step) override { cpu::adamw_step(step); }
  void sum_squares(Stream&, std::span<const Tensor> tensors, const Tensor& sums) override {
    cpu::sum_squares(tensors, sums);
  }
  void clip_factor(Stream&, const Tensor& squares, double most, const Tensor& factor) override {
    cpu::clip_factor(squares, most, factor);
  }
  void trust_factors(Stream&, const TrustFactors& request) override { cpu::trust_factors(request); }
  void add_digests(Stream&, std::span<const DigestedTensor> tensors, const Tensor& digests) override {
    cpu::add_digests(tensors, digests);
  }

  ActivationSpec plain_activation(const Shape& shape) override {
    return cpu::activation_of(shape, cpu::plain(cpu::dims_of(shape)));
  }

  void to_plain(Stream& stream, const ActivationSpec& activation, const void* from, const Tensor& to) override {
    require_plain(activation, to);
    convert(stream, {cpu::desc_of(activation), from}, {plain_of(activation), to.data});
  }
  void from_plain(Stream& stream, const ActivationSpec& activation, const Tensor& from, void* to) override {
    require_plain(activation, from);
    convert(stream, {plain_of(activation), from.data}, {cpu::desc_of(activation), to});
  }

  std::unique_ptr<LayerWeights> make_weights(const LayerSpec& spec, std::span<const Tensor> values) override {
    return std::make_unique<cpu::CpuWeights>(engine_, spec, values);
  }
  std::unique_ptr<Layer> make_layer(const LayerSpec& spec, const LayerRequest& request) override {
    require_samples(spec, request);
    return std::visit([&](const auto& layer) { return cpu::make(processor_, layer, request); }, spec);
  }
  std::unique_ptr<LossLayer> make_softmax_loss(const ActivationSpec& logits, double smoothing) override {
    return cpu::make_softmax_loss(engine_, logits, smoothing);
  }

 private:
  struct Values {
    cpu::Desc desc;
    const void* address;
  };

  static cpu::Desc plain_of(const ActivationSpec& activation) { return cpu::plain(cpu::dims_of(activation.shape)); }

  static void require_plain(const ActivationSpec& activation, const Tensor& values) {
    if (host_f32(values).size() == static_cast<std::size_t>(activation.shape.elements())) return;
    throw Error(ErrorSource::internal, fmt::format("an activation of {} is converted with a tensor of {}",
                                                   activation.shape.text(), values.shape.text()));
  }

  void convert(Stream& stream, const Values& from, const Values& to) {
    cpu::check([] { return "converting an activation"; },
               [&] {
                 cpu::Placed source(engine_, from.desc);
                 cpu::Placed target(engine_, to.desc);
                 source.place(from.address);
                 target.place(to.address);
                 cpu::make_reorder(engine_, source.memory(), target.memory()).run(cpu::cpu_stream(stream));
               });
  }

  dnnl::engine engine_;
  cpu::Processor processor_;
};

}  // namespace

std::unique_ptr<Backend> make_cpu_backend(Precision precision, Convolutions convolutions) {
  return cpu::check([] { return "opening the processor"; },
                    [&] { return std::make_unique<CpuBackend>(precision, convolutions); });
}

std::string cpu_library_version() { return cpu::library_version(); }

}  // namespace tutti
