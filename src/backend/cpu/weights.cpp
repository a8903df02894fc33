#include "backend/cpu/weights.hpp"

#include "tutti/base/error.hpp"

#include <fmt/format.h>

namespace tutti::cpu {

CpuWeights::CpuWeights(const LayerSpec& spec, std::span<const Tensor> values)
    : spec_(spec), values_(values.begin(), values.end()) {
  for (const Tensor& value : values_) host_f32(value);  // throws unless they are f32 in host memory
}

const CpuWeights& weights_of(const LayerSpec& spec, const LayerRequest& request) {
  const auto* const weights = dynamic_cast<const CpuWeights*>(request.weights);
  if (weights == nullptr) {
    throw Error(ErrorSource::internal,
                fmt::format("a plan of {} needs weights made by the cpu backend", type_name(spec)));
  }
  require_weights(weights->spec_, weights->values_, spec, request.input.shape.without_first());
  return *weights;
}

}  // namespace tutti::cpu
