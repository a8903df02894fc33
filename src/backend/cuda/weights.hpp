#pragma once
// One layer's weights on a GPU: the canonical values, and of filters one copy in the order and type that convolutions
// read. Plans of all batch sizes and parts share the copy; while they run, nobody may refresh.

#include "backend/cuda/layers.hpp"
#include "backend/requests.hpp"

#include <cuda_runtime_api.h>

#include <mutex>
#include <span>
#include <vector>

namespace tutti::cuda {

// Canonical: outputs, channels, positions (rows x columns), f32. Packed: padded outputs, positions, padded channels.
struct FilterLayout {
  std::int64_t outputs = 0;
  std::int64_t channels = 0;
  std::int64_t positions = 1;
  std::int64_t padded_outputs = 0;
  std::int64_t padded_channels = 0;

  std::int64_t packed_values() const { return padded_outputs * positions * padded_channels; }
  friend bool operator==(const FilterLayout&, const FilterLayout&) = default;
};

// Zeros between the channels and their padding are written, those of padded outputs are left as they are.
struct FilterPacking {
  FilterLayout layout;
  ElementType type = ElementType::f32;  // of the packed values
  const float* canonical = nullptr;
  void* packed = nullptr;
};
// Of several layers, all of one type.
void launch_pack(cudaStream_t stream, std::span<const FilterPacking> requests);

// What is left to do for the gradients of a layer's parameters.
struct FilterGradients {
  FilterLayout layout;
  ElementType type = ElementType::f32;
  const void* packed = nullptr;
  float* canonical = nullptr;
  std::int64_t partials = 0;             // sums, of the output gradients
  const float* bias_partials = nullptr;  // null without bias
  float* bias = nullptr;
};
void launch_unpack(cudaStream_t stream, const FilterGradients& request);

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
  void require(const LayerSpec& spec, const Shape& sample) const { require_weights(spec_, values_, spec, sample); }

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
