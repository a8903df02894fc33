#include "backend/cpu/weights.hpp"

#include "backend/cpu/library.hpp"
#include "backend/cpu/primitive.hpp"

#include <algorithm>

namespace tutti::cpu {

CpuWeights::CpuWeights(const dnnl::engine& engine, const LayerSpec& spec, std::span<const Tensor> values)
    : engine_(engine), spec_(spec), values_(values.begin(), values.end()) {
  for (const Tensor& value : values_) host_f32(value);  // throws unless they are f32 in host memory
}

void CpuWeights::refresh(Stream& stream) {
  const std::lock_guard lock(mutex_);
  refreshed_ = true;
  for (Copy& copy : copies_) copy.reorder.run(cpu_stream(stream));
}

dnnl::memory CpuWeights::prepared(std::size_t index, const Desc& wanted) {
  // The canonical order of a weight is the same as units x inputs and as units x channels x rows x columns, so the view
  // uses the wanted dimensions.
  const Desc canonical = plain(dims_of(wanted));
  const dnnl::memory values(canonical, engine_, values_.at(index).data);
  if (wanted == canonical) return values;

  const std::lock_guard lock(mutex_);
  const auto same = [&](const Copy& copy) { return copy.index == index && copy.values.get_desc() == wanted; };
  const auto found = std::ranges::find_if(copies_, same);
  if (found != copies_.end()) return found->values;

  const dnnl::memory made(wanted, engine_);
  copies_.push_back({index, made, Reorder(values, made)});
  if (refreshed_) {
    CpuStream stream(engine_);
    copies_.back().reorder.run(stream);
    stream.synchronize();
  }
  return made;
}

CpuWeights& weights_of(const LayerSpec& spec, const LayerRequest& request) {
  auto* const weights = dynamic_cast<CpuWeights*>(request.weights);
  if (weights == nullptr) {
    throw Error(ErrorSource::internal,
                fmt::format("a plan of {} needs weights made by the cpu backend", type_name(spec)));
  }
  require_weights(weights->spec_, weights->values_, spec, request.input.shape.without_first());
  return *weights;
}

}  // namespace tutti::cpu
