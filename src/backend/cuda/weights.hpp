#pragma once
// One layer's weights on a GPU: the canonical values, and of filters one copy in the order and type that convolutions
// read. Plans of all batch sizes and parts share the copy; while they run, nobody may refresh.

#include "tutti/backend/cuda_stream.hpp"
#include "tutti/backend/layer.hpp"
#include "tutti/backend/layer_spec.hpp"

#include "backend/cuda/filter_kernels.hpp"
#include "backend/cuda/processor.hpp"

#include <mutex>
#include <span>
#include <vector>

namespace tutti::cuda {

class CudaWeights final : public LayerWeights {
 public:
  CudaWeights(const Processor& processor, const LayerSpec& spec, std::span<const Tensor> values);
  void refresh(Stream& stream) override;
  // In one go, as Backend::refresh.
  static void refresh(CudaStream& stream, std::span<LayerWeights* const> layers);

  // In the order of parameters().
  std::span<const Tensor> canonical() const { return values_; }
  // The first value as packed filters: from now on kept fresh by refresh(), and at once when there has been one. Plans
  // may be made in several threads at a time, but the layout is the same for all.
  void* packed(const FilterLayout& layout);

  // Throws unless the values are those of `spec` behind an input of this sample.
  void require(const LayerSpec& spec, const Shape& sample) const;

 private:
  FilterPacking packing() const;

  int device_;
  ElementType type_;
  LayerSpec spec_;
  std::vector<Tensor> values_;
  std::mutex mutex_;
  FilterLayout layout_;
  Buffer packed_;
  bool refreshed_ = false;
};

// Throws when they are not weights of the cuda backend.
CudaWeights& cuda_weights(LayerWeights* weights);

}  // namespace tutti::cuda
