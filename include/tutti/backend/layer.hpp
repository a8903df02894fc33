#pragma once
// A Layer is a plan: one spec for one input shape and mode on one backend. It owns its descriptors, algorithm and
// workspace. Weights, activations and gradients belong to the caller.

#include "tutti/backend/loss_sums.hpp"
#include "tutti/backend/stream.hpp"
#include "tutti/backend/tensor.hpp"

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

namespace tutti {

// The memory layout and precision of an activation, opaque except to the backend that made it.
class ActivationFormat {
 public:
  virtual ~ActivationFormat() = default;
};

// How the values between two layers are stored. A gradient is stored like the activation it belongs to.
struct ActivationSpec {
  Shape shape;  // N, then the sample
  std::shared_ptr<const ActivationFormat> format;
  std::size_t bytes = 0;
};

// One layer's weights: the canonical values (Borrowed), and copies in the layouts and precisions that its plans need.
// All plans of the layer share them, across parts.
class LayerWeights {
 public:
  virtual ~LayerWeights() = default;
  // Updates the copies. Must be called after every change of the canonical values. Asynchronous.
  virtual void refresh(Stream& stream) = 0;
};

enum class LayerMode { training, evaluation };

struct LayerRequest {
  ActivationSpec input;
  ActivationSpec residual{};        // only for specs that take one
  LayerWeights* weights = nullptr;  // Borrowed; null for layers without parameters
  LayerMode mode = LayerMode::training;
  bool wants_input_gradient = true;
  bool frozen = false;               // batch norm then uses the running statistics in training, too
  std::uint32_t random_purpose = 0;  // random_purpose(layer name), for its random numbers
};

// The position of a batch in the run. Together with element and purpose, it determines a layer's random numbers.
struct BatchPosition {
  std::uint64_t seed = 0;
  std::uint32_t step = 0;
  std::uint32_t first_position = 0;  // of the batch's first sample in the global batch
};

// The sums that a layer needs over all parts of a global batch, whose passes run concurrently.
class WholeBatchSum {
 public:
  virtual ~WholeBatchSum() = default;
  // Replaces the values, f64 [n] in the processor's memory, by their sums over all parts, whose bits do not depend on
  // the order of the parts. The passes over all parts call it in the same order with the same n. Waits for all.
  virtual void sum(Stream& stream, const Tensor& values) = 0;
};

struct LayerForward {
  const void* input = nullptr;
  const void* residual = nullptr;
  void* output = nullptr;
  WholeBatchSum* whole_batch = nullptr;  // borrowed; null: in training, batch norm uses this part's statistics alone
};

// The gradient of one parameter in the layout and type of its layer, and the canonical one, f32, that is made of it.
struct UnfinishedGradient {
  Tensor values;
  Tensor canonical;
};

// Parameter gradients in the layout and type of the layers, of which finish() makes the canonical ones.
class UnfinishedGradients {
 public:
  virtual ~UnfinishedGradients() = default;
  // Asynchronous. Call it once after the backward passes that left gradients here, unless Backend::update() uses them.
  virtual void finish(Stream& stream) = 0;
  virtual std::vector<UnfinishedGradient> list() const = 0;
};

struct LayerBackward {
  const void* input = nullptr;   // of the last forward(); required if reads_input()
  const void* output = nullptr;  // of the last forward(); required if reads_output()
  // One or more, in the output's format; they are summed. All may be overwritten.
  std::span<void* const> output_gradients;
  void* input_gradient = nullptr;  // output; null: not wanted, as always if the request wants none
  // Output, or output_gradients[0] if residual_gradient_in_place(); null: not wanted.
  void* residual_gradient = nullptr;
  // Canonical, in the order of parameters(); overwritten, not accumulated. For mean and (unbiased) variance they
  // receive the batch statistics times sample_fraction instead.
  std::span<const Tensor> gradients;
  float sample_fraction = 1;  // this batch's share of the samples of the global batch
  // Borrowed. If given, `gradients` may be incomplete until its finish().
  UnfinishedGradients* unfinished = nullptr;
  WholeBatchSum* whole_batch = nullptr;  // that of the last forward()
};

class Layer {
 public:
  virtual ~Layer() = default;
  virtual const ActivationSpec& output() const = 0;
  // Whether backward() reads the forward pass's input and output. If not, the caller may free them.
  virtual bool reads_input() const { return true; }
  virtual bool reads_output() const { return true; }
  // Whether backward() leaves the residual's gradient in output_gradients[0] instead of copying it.
  virtual bool residual_gradient_in_place() const { return false; }
  // Sets the position of the next batches, for random numbers. Asynchronous.
  virtual void set_batch_position(Stream&, const BatchPosition&) {}
  // Asynchronous.
  virtual void forward(Stream& stream, const LayerForward& pass) = 0;
  // Call it only on plans made in training mode, after a forward with the same input. Asynchronous.
  virtual void backward(Stream& stream, const LayerBackward& pass) = 0;
};

struct LossPass {
  const void* logits = nullptr;
  Labels labels;  // 0 .. classes - 1, in the device's memory
  // f32 in the device's memory: 1 / samples of the global batch, or the sum of their labels' weights. A graph of run()
  // uses the value at its launch.
  const float* gradient_scale = nullptr;
  Tensor sums;                      // i64 [LossSums::kFields], added to
  void* logits_gradient = nullptr;  // null in evaluation
};

// The target of a sample is 1 - smoothing for its labels, divided by their shares, plus smoothing / classes for every
// class.
struct LossOptions {
  double smoothing = 0;
  std::vector<double> class_weights{};  // of each class in the loss; empty: 1
};

// Softmax cross-entropy over the logits of a batch.
class LossLayer {
 public:
  virtual ~LossLayer() = default;
  // Asynchronous.
  virtual void run(Stream& stream, const LossPass& pass) = 0;
};

}  // namespace tutti
