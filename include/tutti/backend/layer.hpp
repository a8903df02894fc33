#pragma once
// A Layer is a plan: one spec for one input shape and mode on one backend. It owns its descriptors, algorithm and
// workspace. Weights, activations and gradients belong to the caller.

#include "tutti/backend/stream.hpp"
#include "tutti/backend/tensor.hpp"

#include <array>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
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
  std::uint32_t random_purpose = 0;  // random_purpose(layer name), for its random numbers
};

// The position of a batch in the run. Together with element and purpose, it determines a layer's random numbers.
struct BatchPosition {
  std::uint64_t seed = 0;
  std::uint32_t step = 0;
  std::uint32_t first_position = 0;  // of the batch's first sample in the global batch
};

struct LayerForward {
  const void* input = nullptr;
  const void* residual = nullptr;
  void* output = nullptr;
};

// Parameter gradients in the layout and type of the layers, of which finish() makes the canonical ones.
class UnfinishedGradients {
 public:
  virtual ~UnfinishedGradients() = default;
  // Asynchronous. Call it once after the backward passes that left gradients here.
  virtual void finish(Stream& stream) = 0;
};

struct LayerBackward {
  const void* input = nullptr;   // of the last forward(); required if reads_input()
  const void* output = nullptr;  // of the last forward(); required if reads_output()
  // One or more, in the output's format; they are summed. All may be overwritten.
  std::span<void* const> output_gradients;
  void* input_gradient = nullptr;  // output; ignored if the request wants none
  // Output, or output_gradients[0] if residual_gradient_in_place(); null: not wanted.
  void* residual_gradient = nullptr;
  // Canonical, in the order of parameters(); overwritten, not accumulated. For mean and (unbiased) variance they
  // receive the batch statistics times sample_fraction instead.
  std::span<const Tensor> gradients;
  float sample_fraction = 1;  // this batch's share of the samples of the global batch
  // Borrowed. If given, `gradients` may be incomplete until its finish().
  UnfinishedGradients* unfinished = nullptr;
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

// Loss and accuracy sums over samples, as integers, so that they do not depend on the order of addition or the number
// of ranks. They stay on the device until they are read. The loss of a call is split into digits in base kLossBase,
// each summed in its own field, so that any finite loss is counted and 2^23 calls cannot overflow a field.
struct LossSums {
  static constexpr int kFields = 8;
  static constexpr int kNotFinite = 3;                  // index of not_finite
  static constexpr int kLargeLosses = 4;                // index of large_losses[0]
  static constexpr double kLossScale = 16777216.0;      // 2^24 steps per unit of loss
  static constexpr double kLossBase = 1099511627776.0;  // 2^40
  static constexpr double kLargestUnit = 0x1p136;       // unit of the last large_losses field
  using Fields = std::array<std::int64_t, kFields>;

  std::int64_t loss_quanta = 0;  // the least significant digit of the sum of losses, in units of 1 / kLossScale
  std::int64_t correct = 0;      // samples whose largest logit (the first of equals) is the label's
  std::int64_t samples = 0;
  std::int64_t not_finite = 0;                 // calls whose loss was NaN or infinite
  std::array<std::int64_t, 4> large_losses{};  // of losses of 2^16 and more: units of 2^16, 2^56, 2^96 and 2^136

  // The fields in the order in which they are stored on the device.
  Fields fields() const { return std::bit_cast<Fields>(*this); }
  static LossSums from(const Fields& fields) { return std::bit_cast<LossSums>(fields); }
  // Adds the loss of one call.
  void add_loss(double loss) {
    if (!std::isfinite(loss)) {
      ++not_finite;
      return;
    }
    // Only the last digit is rounded.
    double unit = kLargestUnit;
    for (std::size_t i = large_losses.size(); i-- > 0; unit /= kLossBase) {
      const double digit = std::trunc(loss / unit);
      large_losses[i] += static_cast<std::int64_t>(digit);
      loss -= digit * unit;
    }
    loss_quanta += std::llrint(loss * kLossScale);
  }

  // NaN if any call's loss was not finite.
  double loss() const {
    if (not_finite > 0) return std::numeric_limits<double>::quiet_NaN();
    double loss = 0;
    double unit = kLargestUnit;
    for (std::size_t i = large_losses.size(); i-- > 0; unit /= kLossBase) {
      loss += static_cast<double>(large_losses[i]) * unit;
    }
    return loss + static_cast<double>(loss_quanta) / kLossScale;
  }
  double mean_loss() const { return loss() / static_cast<double>(samples); }
  double accuracy() const { return static_cast<double>(correct) / static_cast<double>(samples); }
  friend bool operator==(const LossSums&, const LossSums&) = default;
  friend LossSums operator+(const LossSums& one, const LossSums& other) { return combine<std::plus<>>(one, other); }
  friend LossSums operator-(const LossSums& one, const LossSums& other) { return combine<std::minus<>>(one, other); }

 private:
  // Results are modulo 2^64, as on devices.
  template <class Operation>
  static LossSums combine(const LossSums& one, const LossSums& other) {
    Fields fields = one.fields();
    const Fields others = other.fields();
    for (std::size_t i = 0; i < fields.size(); ++i) {
      fields[i] = static_cast<std::int64_t>(
          Operation{}(static_cast<std::uint64_t>(fields[i]), static_cast<std::uint64_t>(others[i])));
    }
    return from(fields);
  }
};

struct LossPass {
  const void* logits = nullptr;
  Labels labels;                    // 0 .. classes - 1, in the device's memory
  float gradient_scale = 0;         // 1 / samples of the global batch, or the sum of their labels' weights
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
