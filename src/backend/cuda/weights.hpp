#pragma once
// One layer's weights on a GPU: the canonical values. Shared by the plans of all batch sizes and parts.

#include "tutti/backend/layer.hpp"
#include "tutti/backend/layer_spec.hpp"

#include "backend/cuda/processor.hpp"

#include <span>
#include <vector>

namespace tutti::cuda {

class CudaWeights final : public LayerWeights {
 public:
  CudaWeights(const Processor& processor, const LayerSpec& spec, std::span<const Tensor> values);
  void refresh(Stream& stream) override;

  // In the order of parameters().
  std::span<const Tensor> canonical() const { return values_; }

  // Throws unless the values are those of `spec` behind an input of this sample.
  void require(const LayerSpec& spec, const Shape& sample) const;

 private:
  LayerSpec spec_;
  std::vector<Tensor> values_;
};

// Throws when they are not weights of the cuda backend.
CudaWeights& cuda_weights(LayerWeights* weights);

}  // namespace tutti::cuda
