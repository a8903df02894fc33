#include "backend/cuda/weights.hpp"

#include "tutti/base/error.hpp"

#include "backend/cuda/check.hpp"
#include "backend/cuda/device_tensor.hpp"
#include "backend/cuda/layers.hpp"
#include "backend/cuda/native.hpp"

#include <fmt/format.h>

#include <algorithm>

namespace tutti::cuda {

CudaWeights::CudaWeights(const Processor& processor, const LayerSpec& spec, std::span<const Tensor> values)
    : device_(processor.device), type_(processor.type), spec_(spec), values_(values.begin(), values.end()) {
  for (const Tensor& value : values_) device_f32(value);  // throws unless they are f32 in a GPU's memory
}

FilterPacking CudaWeights::packing() const { return {layout_, type_, device_f32(values_.at(0)), packed_.data()}; }

void CudaWeights::refresh(Stream& stream) {
  LayerWeights* const layers[] = {this};
  refresh(as_cuda_stream(stream), layers);
}

void CudaWeights::refresh(CudaStream& stream, std::span<LayerWeights* const> layers) {
  std::vector<FilterPacking> packings;
  for (LayerWeights* const layer : layers) {
    CudaWeights& weights = cuda_weights(layer);
    const std::lock_guard lock(weights.mutex_);
    weights.refreshed_ = true;
    if (weights.packed_.data() != nullptr) packings.push_back(weights.packing());
  }
  use_cuda_device(stream.device());
  launch_pack(native(stream), packings);
}

void* CudaWeights::packed(const FilterLayout& layout) {
  const std::lock_guard lock(mutex_);
  if (packed_.data() == nullptr) {
    layout_ = layout;
    packed_ = allocate_cuda(device_, static_cast<std::size_t>(layout.packed_values()) * bytes_of(type_));
    if (refreshed_) {
      check(cudaDeviceSynchronize());  // the values may be on their way in any stream
      const auto stream = make_cuda_stream(device_);
      const FilterPacking mine[] = {packing()};
      launch_pack(native(*stream), mine);
      stream->synchronize();
    }
  }
  if (layout != layout_) {
    throw Error(ErrorSource::internal, fmt::format("two plans of {} read their weights differently", type_name(spec_)));
  }
  return packed_.data();
}

void CudaWeights::require(const LayerSpec& spec, const Shape& sample) const {
  const auto wanted = parameters(spec, sample);
  const auto fits = [](const ParameterSpec& parameter, const Tensor& value) { return parameter.shape == value.shape; };
  if (spec == spec_ && std::ranges::equal(wanted, values_, fits)) return;
  throw Error(ErrorSource::internal, fmt::format("a plan of {} on samples of {} was given the weights of another layer",
                                                 type_name(spec), sample.text()));
}

CudaWeights& cuda_weights(LayerWeights* weights) {
  auto* const found = dynamic_cast<CudaWeights*>(weights);
  if (found == nullptr) throw Error(ErrorSource::internal, "a plan needs weights made by the cuda backend");
  return *found;
}

std::unique_ptr<LayerWeights> make_weights(const Processor& processor, const LayerSpec& spec,
                                           std::span<const Tensor> values) {
  return std::make_unique<CudaWeights>(processor, spec, values);
}

}  // namespace tutti::cuda
