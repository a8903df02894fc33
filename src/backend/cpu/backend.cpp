#include "backend/cpu/backend.hpp"

#include "backend/cpu/layers.hpp"
#include "backend/cpu/primitive.hpp"
#include "backend/cpu/weights.hpp"
#include "backend/requests.hpp"

namespace tutti::cpu {

CpuBackend::CpuBackend(Precision precision, Convolutions convolutions)
    : processor_{dnnl::engine(dnnl::engine::kind::cpu, 0), compute_type(precision),
                 convolutions == Convolutions::tiled} {}

std::string CpuBackend::description() const {
  return fmt::format("cpu: {}, {}, {}", instruction_set(), library_version(), threading_library());
}

std::unique_ptr<Stream> CpuBackend::make_stream() {
  return check([] { return "making a stream"; }, [&] { return std::make_unique<CpuStream>(processor_.engine); });
}

ActivationSpec CpuBackend::plain_activation(const Shape& shape) { return activation_of(shape, plain(dims_of(shape))); }

void CpuBackend::to_plain(Stream& stream, const ActivationSpec& activation, const void* from, const Tensor& to) {
  require_equal_sizes("converting an activation between", activation.shape.elements(), std::ssize(host_f32(to)));
  check([] { return "converting an activation"; },
        [&] {
          const dnnl::memory source(desc_of(activation), processor_.engine, const_cast<void*>(from));
          const dnnl::memory target(plain(dims_of(activation.shape)), processor_.engine, to.data);
          Reorder(source, target).run(cpu_stream(stream));
        });
}

std::unique_ptr<LayerWeights> CpuBackend::make_weights(const LayerSpec& spec, std::span<const Tensor> values) {
  return std::make_unique<CpuWeights>(processor_.engine, spec, values);
}

std::unique_ptr<Layer> CpuBackend::make_layer(const LayerSpec& spec, const LayerRequest& request) {
  require_samples(spec, request);
  return check([&] { return fmt::format("making {} on {}", type_name(spec), request.input.shape.text()); },
               [&] { return std::visit([&](const auto& layer) { return make(processor_, layer, request); }, spec); });
}

std::unique_ptr<LossLayer> CpuBackend::make_softmax_loss(const ActivationSpec& logits, const LossOptions& options) {
  return check([&] { return fmt::format("making softmax loss on {}", logits.shape.text()); },
               [&] { return cpu::make_softmax_loss(processor_.engine, logits, options); });
}

}  // namespace tutti::cpu

namespace tutti {

std::unique_ptr<Backend> make_cpu_backend(Precision precision, Convolutions convolutions) {
  return cpu::check([] { return "opening the processor"; },
                    [&] { return std::make_unique<cpu::CpuBackend>(precision, convolutions); });
}

std::string cpu_library_version() { return cpu::library_version(); }

}  // namespace tutti
