#pragma once
// One layer's weights on a GPU: the canonical values, and one copy of filters in the layout and type of the
// convolutions. Plans of all batch sizes and parts share the copy; weights must not be refreshed while plans run.

#include "backend/cuda/convolution.hpp"
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
  std::int64_t channels = 0;  // of a group
  std::int64_t positions = 1;
  std::int64_t padded_outputs = 0;
  std::int64_t padded_channels = 0;

  std::int64_t canonical_values() const { return outputs * channels * positions; }
  std::int64_t packed_values() const { return padded_outputs * positions * padded_channels; }
  friend bool operator==(const FilterLayout&, const FilterLayout&) = default;
};

// The filters of one layer, or their gradients, in both forms.
struct PackedFilters {
  FilterLayout layout;
  ElementType type = ElementType::f32;  // of the packed values
  float* canonical = nullptr;
  void* packed = nullptr;
};
// Packs, or unpacks, any number of layers, all of one type. Packing writes the zeros of padded channels, but not those
// of padded outputs. Asynchronous.
void launch_pack(cudaStream_t stream, std::span<const PackedFilters> layers);
void launch_unpack(cudaStream_t stream, std::span<const PackedFilters> layers);

// The gradients of filters, which one kernel unpacks.
class PackedGradients final : public UnfinishedGradients {
 public:
  void add(const PackedFilters& gradients) { gradients_.push_back(gradients); }
  void finish(Stream& stream) override;
  std::vector<UnfinishedGradient> list() const override;
  std::span<const PackedFilters> filters() const { return gradients_; }

 private:
  std::vector<PackedFilters> gradients_;
};

class CudaWeights final : public LayerWeights {
 public:
  CudaWeights(const Processor& processor, const LayerSpec& spec, std::span<const Tensor> values);
  // The stream must exist as long as plans are made.
  void refresh(Stream& stream) override;
  // Refreshes all layers in one kernel. See Backend::refresh.
  static void refresh(CudaStream& stream, std::span<LayerWeights* const> layers);

  // The filters, which work on this stream packs from their canonical values. `packed` is null if no plan wants them.
  PackedFilters filters_refreshed_on(CudaStream& stream);

  // The canonical values, in the order of parameters().
  std::span<const Tensor> canonical() const { return values_; }
  // The packed filters. refresh() updates them from now on. If refresh() was called before, they are packed now, after
  // the work of its stream.
  // Thread-safe; the layout must be the same in all calls.
  void* packed(const FilterLayout& layout);

  const LayerSpec& spec() const { return spec_; }

 private:
  PackedFilters filters() const;

  int device_;
  ElementType type_;
  LayerSpec spec_;
  std::vector<Tensor> values_;
  std::mutex mutex_;
  FilterLayout layout_;
  Buffer packed_;
  CudaStream* refreshed_on_ = nullptr;  // by the last refresh(). Borrowed
};

// Throw unless these are CUDA weights; the second also unless they belong to this layer.
CudaWeights& cuda_weights(LayerWeights* weights);
CudaWeights& cuda_weights(const LayerSpec& spec, const LayerRequest& request);

// A layer as a convolution, a bias and ReLU.
struct WeightedLayerDesc {
  ConvolutionShape convolution;
  FilterLayout filters;
  ActivationSpec output;
  LayerReads reads;
  bool relu = false;
};

// Describes a convolution or linear layer in this precision, for an input in the native layout.
WeightedLayerDesc weighted_layer_of(Precision precision, const LayerSpec& spec, const ActivationSpec& input);

}  // namespace tutti::cuda
