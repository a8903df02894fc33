#pragma once
// One layer's weights on the CPU: the canonical values, which all passes read.

#include "tutti/backend/layer_spec.hpp"

#include "backend/requests.hpp"

#include <span>
#include <vector>

namespace tutti::cpu {

class CpuWeights final : public LayerWeights {
 public:
  CpuWeights(const LayerSpec& spec, std::span<const Tensor> values);
  void refresh(Stream&) override {}

  // The value at `index` of parameters().
  const float* canonical(std::size_t index) const { return static_cast<const float*>(values_.at(index).data); }

 private:
  friend const CpuWeights& weights_of(const LayerSpec& spec, const LayerRequest& request);

  LayerSpec spec_;
  std::vector<Tensor> values_;
};

// Throws unless the request has CPU weights of this layer.
const CpuWeights& weights_of(const LayerSpec& spec, const LayerRequest& request);

}  // namespace tutti::cpu
