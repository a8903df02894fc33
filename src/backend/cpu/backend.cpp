#include "backend/cpu/backend.hpp"

#include "tutti/base/error.hpp"

#include "backend/cpu/layers.hpp"
#include "backend/cpu/staged.hpp"
#include "backend/cpu/weights.hpp"
#include "backend/requests.hpp"

namespace tutti::cpu {
namespace {

ElementType compute_type(Precision precision) {
  switch (precision) {
    case Precision::fp32:
      return ElementType::f32;
    case Precision::bf16:
      return ElementType::bf16;
    case Precision::tf32:
      break;
  }
  throw Error(ErrorSource::usage, "--precision tf32 needs GPUs, and this run is on CPUs: give fp32 or bf16");
}

}  // namespace

CpuBackend::CpuBackend(Precision precision)
    : description_("cpu: " + instruction_set()), type_(compute_type(precision)) {}

std::unique_ptr<Stream> CpuBackend::make_stream() { return std::make_unique<CpuStream>(); }

ActivationSpec CpuBackend::plain_activation(const Shape& shape) { return activation_of(plain(shape)); }

void CpuBackend::to_plain(Stream& stream, const ActivationSpec& activation, const void* from, const Tensor& to) {
  require_equal_sizes("converting an activation between", activation.shape.elements(), std::ssize(host_f32(to)));
  const Layout target = plain(activation.shape);
  convert_activation(cpu_stream(stream), {layout_of(activation), const_cast<void*>(from)}, {target, to.data});
}

std::unique_ptr<LayerWeights> CpuBackend::make_weights(const LayerSpec& spec, std::span<const Tensor> values) {
  return std::make_unique<CpuWeights>(spec, values);
}

std::unique_ptr<Layer> CpuBackend::make_layer(const LayerSpec& spec, const LayerRequest& request) {
  require_samples(spec, request);
  return std::visit([&](const auto& layer) { return make(type_, layer, request); }, spec);
}

std::unique_ptr<LossLayer> CpuBackend::make_softmax_loss(const ActivationSpec& logits, const LossOptions& options) {
  return cpu::make_softmax_loss(logits, options);
}

}  // namespace tutti::cpu

namespace tutti {

std::unique_ptr<Backend> make_cpu_backend(Precision precision) { return std::make_unique<cpu::CpuBackend>(precision); }

}  // namespace tutti
