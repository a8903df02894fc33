#include "backend/cuda/weights.hpp"

#include "tutti/base/error.hpp"

#include "backend/cuda/layers.hpp"

#include <fmt/format.h>

#include <algorithm>

namespace tutti::cuda {

CudaWeights::CudaWeights(const Processor&, const LayerSpec& spec, std::span<const Tensor> values)
    : spec_(spec), values_(values.begin(), values.end()) {}

void CudaWeights::refresh(Stream&) {}

void CudaWeights::require(const LayerSpec& spec, const Shape& sample) const {
  const auto wanted = parameters(spec, sample);
  const auto fits = [](const ParameterSpec& parameter, const Tensor& value) { return parameter.shape == value.shape; };
  if (spec == spec_ && std::ranges::equal(wanted, values_, fits)) return;
  throw Error(ErrorSource::internal, fmt::format("a plan of {} on samples of {} was given the weights of another layer",
                                                 type_name(spec), sample.text()));
}

CudaWeights& cuda_weights(LayerWeights* weights) {
  auto* const found = dynamic_cast<CudaWeights*>(weights);
  if (found == nullptr) throw Error(ErrorSource::internal, "a layer is not given weights made by the cuda backend");
  return *found;
}

std::unique_ptr<LayerWeights> make_weights(const Processor& processor, const LayerSpec& spec,
                                           std::span<const Tensor> values) {
  return std::make_unique<CudaWeights>(processor, spec, values);
}

}  // namespace tutti::cuda
