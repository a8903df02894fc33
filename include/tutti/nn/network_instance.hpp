#pragma once
// An instance of a network that can compute: the prepared layers, activations and workspace for one batch at a time, in
// training or evaluation. It borrows the weights, which all instances of a rank share, and knows nothing of ranks,
// optimizers or data sets.

#include "tutti/nn/network.hpp"

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace tutti {

// The weights of all layers in the forms that the backend's layers want, shared by all instances of a rank.
class NetworkWeights {
 public:
  // `block` holds the canonical values. Borrowed, as is the backend.
  NetworkWeights(const Network& network, Backend& backend, const Tensor& block);
  // Call it after every change of the block. Asynchronous.
  void refresh(Stream& stream);
  // Null for layers without parameters.
  LayerWeights* of(std::size_t layer) const { return layers_.at(layer).get(); }
  // Those of all layers with parameters.
  std::vector<LayerWeights*> all() const;

 private:
  Backend& backend_;
  std::vector<std::unique_ptr<LayerWeights>> layers_;
};

struct PassSize {
  std::int64_t samples = 0;
  LayerMode mode = LayerMode::training;
  std::size_t bytes_per_value = sizeof(float);
};
// The bytes that a pass over a network needs for activations and their gradients, by shapes alone: before a processor
// is asked, which may store them otherwise.
std::size_t estimate_activations(const Network& network, const PassSize& pass);

// A whole pass over one batch, in training.
struct TrainPass {
  Tensor images;  // f32 N, C, H, W with an N that was planned for training
  Labels labels;
  float gradient_scale = 0;   // as in LossPass
  Tensor sums;                // LossSums: added to
  Tensor gradients;           // the block: overwritten
  float sample_fraction = 1;  // the batch's share of the samples of the global batch
  BatchPosition place{};
  // The last of the backward pass. Layers before it must have no statistics to measure; their gradients become 0.
  std::size_t first_layer = 0;
  // Gradients that the backend finishes together may be left to the caller; see NetworkInstance::unfinished().
  bool may_leave_unfinished = false;
};

// What a digest of NetworkInstance::trace() is of.
struct TracedValue {
  std::string layer;  // or "loss"
  bool is_backward = false;
};

struct PassPlan;

// Called after a layer's backward: gradients [0, ready_elements) of the block are ready. The last call includes the
// statistics.
using AfterLayer = std::function<void(std::int64_t ready_elements)>;

// What train() calls during a pass. The functions may enqueue work on the stream.
struct PassCallbacks {
  // Ascending: after_layer is called as soon as gradients [0, end) are ready. Other calls may come in between.
  std::span<const std::int64_t> bucket_ends;
  std::function<void()> before_backward;  // the gradients are overwritten once it returns
  AfterLayer after_layer;
};

class NetworkInstance {
 public:
  // All borrowed. `loss` is the training loss.
  NetworkInstance(const Network& network, NetworkWeights& weights, Backend& backend, const LossOptions& loss = {});
  ~NetworkInstance();
  NetworkInstance(const NetworkInstance&) = delete;
  NetworkInstance& operator=(const NetworkInstance&) = delete;

  // Calls `done`, in the computing thread, whenever a layer's forward or backward has been computed or enqueued.
  void after_layers(std::function<void()> done) { layer_done_ = std::move(done); }
  // In training, batch norms use the statistics of all parts of the global batch; passes are then computed without
  // graphs. Borrowed. Null (the default): those of each batch alone.
  void normalize_over(WholeBatchSum* whole_batch) { whole_batch_ = whole_batch; }
  // Prepares for batches of this many samples. Call it for all sizes before the first forward.
  void plan(std::int64_t samples, LayerMode mode);
  // Memory for activations and their gradients.
  std::size_t activation_bytes() const;

  // Forward, loss and backward of one batch. A pass that repeats with only its place changed is captured as CUDA
  // graphs, if the backend has them, that end where buckets do; later ones launch these. All that `pass` points to is
  // borrowed until the work is done. Asynchronous.
  void train(Stream& stream, const TrainPass& pass, const PassCallbacks& callbacks);
  // The gradients that the last train() left unfinished; null if there are none. Borrowed until the next train() or
  // plan().
  UnfinishedGradients* unfinished() const { return unfinished_; }

  // Computes the same pass layer by layer, without graphs, and digests what each layer writes: the outputs of all
  // layers, the gradient of the loss, and the gradients of all layers, the last layer first. Slow. Waits.
  std::vector<std::uint64_t> trace(Stream& stream, const TrainPass& pass);
  // The number of these digests, and what each is of.
  static std::size_t traced_values(const Network& network) { return 2 * network.layers().size() + 1; }
  static TracedValue traced_value(const Network& network, std::size_t index);

  // The following compute a training pass piece by piece, or evaluate.

  // `images` is f32 N, C, H, W with an N that was planned for this mode. Borrowed until backward. Asynchronous.
  void forward(Stream& stream, const Tensor& images, LayerMode mode, const BatchPosition& place = {});
  // Copies the last forward's logits, f32 N x classes, into memory of the backend. Asynchronous.
  void copy_logits(Stream& stream, const Tensor& to) const;
  // Adds to `sums`; in training also computes the gradient of the logits, scaled by `gradient_scale`. Asynchronous.
  void loss(Stream& stream, const Labels& labels, float gradient_scale, const Tensor& sums);
  // Overwrites the gradients of `block`, last layer first, and the statistics in its tail with those of this batch
  // times its share of the global batch. Asynchronous.
  void backward(Stream& stream, const Tensor& block, float sample_fraction, const AfterLayer& after_layer);

 private:
  const PassPlan& plan_for(std::int64_t samples, LayerMode mode) const;
  void set_batch_position(Stream& stream, const BatchPosition& place) const;
  void set_gradient_scale(Stream& stream, float scale);
  void run_forward(Stream& stream, const Tensor& images);
  void run_layer(Stream& stream, std::size_t layer);
  // The graphs of such a pass, or null while there are none.
  struct PassGraphs;
  const PassGraphs* graphs_of(Stream& stream, const TrainPass& pass, std::span<const std::int64_t> bucket_ends);
  void capture(Stream& stream, const TrainPass& pass, PassGraphs& graphs);
  void* address(std::size_t block) const;
  // The values of a layer's output, or of the images.
  const void* values_of(int layer) const;
  struct GradientTarget {
    Tensor block;
    float sample_fraction = 1;
    std::size_t first_layer = 0;
    UnfinishedGradients* unfinished = nullptr;
    bool includes(int layer) const { return layer >= static_cast<int>(first_layer); }
  };
  void run_backward(Stream& stream, std::size_t layer, const GradientTarget& target);
  void run_backward(Stream& stream, const GradientTarget& target, const AfterLayer& after_layer);
  // The digest of a layer's output, or of a gradient of it.
  std::uint64_t digest_of_activation(Stream& stream, std::size_t layer, std::size_t block);
  std::uint64_t digest_of_gradients(Stream& stream, std::size_t layer, const GradientTarget& target);

  const Network& network_;
  NetworkWeights& weights_;
  Backend& backend_;
  LossOptions loss_;
  std::optional<float> gradient_scale_;  // in the next
  Buffer gradient_scale_memory_;         // of the device
  std::function<void()> layer_done_ = [] {};
  WholeBatchSum* whole_batch_ = nullptr;
  std::map<std::pair<std::int64_t, LayerMode>, std::unique_ptr<PassPlan>> plans_;
  Buffer activations_;                        // with their gradients; large enough for the largest plan
  std::vector<std::int64_t> ready_elements_;  // the number of elements that are ready after each layer's backward
  std::vector<std::unique_ptr<PassGraphs>> graphs_;
  const PassPlan* current_ = nullptr;
  const void* images_ = nullptr;
  UnfinishedGradients* unfinished_ = nullptr;
};

}  // namespace tutti
