#pragma once
// One instance of a network: the prepared layers, activations and workspace with which one part is played at a time.
// It borrows the weights, which all parts share, and knows nothing of ranks, optimizers or data sets.

#include "tutti/nn/network.hpp"

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <utility>
#include <vector>

namespace tutti {

// The weights of all layers in the forms that the backend's layers want, shared by all parts of a rank.
class NetworkWeights {
 public:
  // `block` holds the canonical values. Borrowed.
  NetworkWeights(const Network& network, Backend& backend, const Tensor& block);
  // To be called after every change of the block. Asynchronous.
  void refresh(Stream& stream);
  // Null for layers without parameters.
  LayerWeights* of(std::size_t layer) const { return layers_.at(layer).get(); }

 private:
  std::vector<std::unique_ptr<LayerWeights>> layers_;
};

class PassPlan;

class PartContext {
 public:
  // Told after each layer's backward: gradients [0, final_elements) of the block are complete; the statistics with
  // the last call.
  using AfterLayer = std::function<void(std::int64_t final_elements)>;

  // All borrowed. `label_smoothing` is that of the training loss.
  PartContext(const Network& network, NetworkWeights& weights, Backend& backend, double label_smoothing = 0);
  ~PartContext();
  PartContext(const PartContext&) = delete;
  PartContext& operator=(const PartContext&) = delete;

  // Prepares for batches of this many samples; to be called for all sizes before the first forward.
  void plan(std::int64_t samples, LayerMode mode);
  // Memory held for activations and their gradients.
  std::size_t activation_bytes() const;

  // `images` is f32 N, C, H, W with an N that was planned for this mode. Borrowed until backward. Asynchronous.
  void forward(Stream& stream, const Tensor& images, LayerMode mode, const SamplePlace& place = {});
  // Adds to `sums`; in training also starts the gradient, scaled by `gradient_scale`. Asynchronous.
  void loss(Stream& stream, const Tensor& labels, float gradient_scale, const Tensor& sums);
  // Overwrites the gradients of `block`, last layer first, and the statistics in its tail with this batch's times its
  // share of the global batch. Asynchronous.
  void backward(Stream& stream, const Tensor& block, float sample_share, const AfterLayer& after_layer);

 private:
  const PassPlan& plan_for(std::int64_t samples, LayerMode mode) const;
  void* address(std::size_t block) const;
  // Of a layer's output, or of the images.
  const void* values_of(int layer) const;
  void run_backward(Stream& stream, std::size_t layer, const Tensor& block, float sample_share);

  const Network& network_;
  NetworkWeights& weights_;
  Backend& backend_;
  double label_smoothing_;
  std::map<std::pair<std::int64_t, LayerMode>, std::unique_ptr<PassPlan>> plans_;
  Buffer arena_;  // activations and their gradients, for the plan that needs most
  const PassPlan* current_ = nullptr;
  const void* images_ = nullptr;
};

}  // namespace tutti
