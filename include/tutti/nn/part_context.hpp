#pragma once
// One instance of a network: the prepared layers, activations and workspace with which one part is played at a time.
// It borrows the weights, which all parts share, and knows nothing of ranks, optimizers or data sets.

#include "tutti/nn/network.hpp"

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <utility>
#include <vector>

namespace tutti {

// The weights of all layers in the forms that the backend's layers want, shared by all parts of a rank.
class NetworkWeights {
 public:
  // `block` holds the canonical values. Borrowed, as is the backend.
  NetworkWeights(const Network& network, Backend& backend, const Tensor& block);
  // To be called after every change of the block. Asynchronous.
  void refresh(Stream& stream);
  // Null for layers without parameters.
  LayerWeights* of(std::size_t layer) const { return layers_.at(layer).get(); }

 private:
  Backend& backend_;
  std::vector<std::unique_ptr<LayerWeights>> layers_;
};

// A whole pass over one batch, in training.
struct TrainPass {
  Tensor images;             // f32 N, C, H, W with an N that was planned for training
  Tensor labels;             // i32 N
  float gradient_scale = 0;  // 1 / samples of the global batch
  Tensor sums;               // LossSums: added to
  Tensor gradients;          // the block: overwritten
  float sample_share = 1;    // the batch's share of the samples of the global batch
  SamplePlace place{};
};

class PassPlan;

class PartContext {
 public:
  // Told after a layer's backward: gradients [0, final_elements) of the block are complete; the statistics with the
  // last call.
  using AfterLayer = std::function<void(std::int64_t final_elements)>;
  // What goes on around a whole pass. May put work of its own on the stream.
  struct Watch {
    // Ascending: who wants to be told when gradients [0, stop) are complete. Other calls may come between.
    std::span<const std::int64_t> stops;
    std::function<void()> before_backward;  // the gradients may be overwritten once it returns
    AfterLayer after_layer;
  };

  // All borrowed. `label_smoothing` is that of the training loss.
  PartContext(const Network& network, NetworkWeights& weights, Backend& backend, double label_smoothing = 0);
  ~PartContext();
  PartContext(const PartContext&) = delete;
  PartContext& operator=(const PartContext&) = delete;

  // Told, in the thread that plays, whenever a layer's forward or backward has been done or enqueued.
  void after_layers(std::function<void()> told) { layer_done_ = std::move(told); }
  // Prepares for batches of this many samples; to be called for all sizes before the first forward.
  void plan(std::int64_t samples, LayerMode mode);
  // Memory held for activations and their gradients.
  std::size_t activation_bytes() const;

  // Forward, loss and backward of one batch. A pass that comes again alike but for its place is recorded, where the
  // backend does so, and replayed from then on, in pieces that end at the stops. Everything in it is borrowed until the
  // work is done, and what is repeated lies where it lay. Asynchronous.
  void train(Stream& stream, const TrainPass& pass, const Watch& watch);

  // The same piece by piece, and evaluation.
  // `images` is f32 N, C, H, W with an N that was planned for this mode. Borrowed until backward. Asynchronous.
  void forward(Stream& stream, const Tensor& images, LayerMode mode, const SamplePlace& place = {});
  // What the last forward made of it all: f32 N x classes, into memory of the backend. Asynchronous.
  void copy_logits(Stream& stream, const Tensor& to) const;
  // Adds to `sums`; in training also starts the gradient, scaled by `gradient_scale`. Asynchronous.
  void loss(Stream& stream, const Tensor& labels, float gradient_scale, const Tensor& sums);
  // Overwrites the gradients of `block`, last layer first, and the statistics in its tail with this batch's times its
  // share of the global batch. Asynchronous.
  void backward(Stream& stream, const Tensor& block, float sample_share, const AfterLayer& after_layer);

 private:
  const PassPlan& plan_for(std::int64_t samples, LayerMode mode) const;
  void set_place(Stream& stream, const SamplePlace& place) const;
  void run_forward(Stream& stream, const Tensor& images);
  // The recording of such a pass, or null while there is none.
  struct Take;
  const Take* take_of(Stream& stream, const TrainPass& pass, std::span<const std::int64_t> stops);
  void record(Stream& stream, const TrainPass& pass, Take& take);
  void* address(std::size_t block) const;
  // Of a layer's output, or of the images.
  const void* values_of(int layer) const;
  void run_backward(Stream& stream, std::size_t layer, const Tensor& block, float sample_share);

  const Network& network_;
  NetworkWeights& weights_;
  Backend& backend_;
  double label_smoothing_;
  std::function<void()> layer_done_ = [] {};
  std::map<std::pair<std::int64_t, LayerMode>, std::unique_ptr<PassPlan>> plans_;
  Buffer arena_;                              // activations and their gradients, for the plan that needs most
  std::vector<std::int64_t> final_elements_;  // by layer: complete after its backward
  std::vector<std::unique_ptr<Take>> takes_;
  const PassPlan* current_ = nullptr;
  const void* images_ = nullptr;
};

}  // namespace tutti
