#pragma once
// Planned layers: one Layer is one spec planned for one input shape and mode on one backend. It owns its descriptors,
// chosen algorithm and workspace; weights, activations and gradients belong to the caller.

#include "tutti/backend/stream.hpp"
#include "tutti/backend/tensor.hpp"

#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <span>

namespace tutti {

// The memory layout and precision of an activation: known to the backend that made it, opaque to everyone else.
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

// One layer's weights: the canonical values, borrowed, and copies in the layouts and precisions that its plans need.
// All plans of the layer share them, whatever part they are for.
class LayerWeights {
 public:
  virtual ~LayerWeights() = default;
  // Copies the canonical values again. Must be called after every change of these. Asynchronous.
  virtual void refresh(Stream& stream) = 0;
};

enum class LayerMode { training, evaluation };

struct LayerRequest {
  ActivationSpec input;
  ActivationSpec residual{};        // for specs that take one
  LayerWeights* weights = nullptr;  // Borrowed; null for layers without parameters
  LayerMode mode = LayerMode::training;
  bool wants_input_gradient = true;
  std::uint32_t random_purpose = 0;  // of the layer's random numbers: random_purpose(its name)
};

// The position of a batch in the run. With element and purpose, it determines the random numbers of a layer.
struct SamplePlace {
  std::uint64_t seed = 0;
  std::uint32_t step = 0;
  std::uint32_t first_position = 0;  // of the batch's first sample in the global batch
};

struct LayerForward {
  const void* input = nullptr;
  const void* residual = nullptr;
  void* output = nullptr;
};

struct LayerBackward {
  const void* input = nullptr;   // as given to the last forward, when reads_input()
  const void* output = nullptr;  // as the last forward left it, when reads_output()
  // One or more, stored like the output: the gradient is their sum. All may be overwritten.
  std::span<void* const> output_gradients;
  void* input_gradient = nullptr;  // written; ignored when the request wanted none
  void* residual_gradient =
      nullptr;  // written, or output_gradients[0] when leaves_residual_gradient(); null: not wanted
  // Canonical, in the order of parameters(); overwritten, not added to. For mean and (unbiased) variance they receive
  // the batch's own statistics times sample_share instead.
  std::span<const Tensor> gradients;
  float sample_share = 1;  // this batch's share of the samples of the global batch
};

class Layer {
 public:
  virtual ~Layer() = default;
  virtual const ActivationSpec& output() const = 0;
  // Whether backward() reads the input and the output of the forward pass. What it does not read need not be kept.
  virtual bool reads_input() const { return true; }
  virtual bool reads_output() const { return true; }
  // Whether backward() leaves the residual's gradient in output_gradients[0] instead of writing it elsewhere.
  virtual bool leaves_residual_gradient() const { return false; }
  // Sets the position in the run of the batches that follow. Asynchronous.
  virtual void set_place(Stream&, const SamplePlace&) {}
  // Asynchronous.
  virtual void forward(Stream& stream, const LayerForward& pass) = 0;
  // Only for plans made in training mode, after a forward with the same input. Asynchronous.
  virtual void backward(Stream& stream, const LayerBackward& pass) = 0;
};

// Sums over samples that do not depend on the order of addition, so that they are equal at any number of ranks:
// integers, which stay on the device until they are read. Adding two LossSums adds each figure. The loss of a call is
// written as digits to the base of kLossBase, each with a figure of its own, so that any finite loss is counted and
// 2^23 calls cannot overflow a figure.
struct LossSums {
  static constexpr int kFigures = 8;
  static constexpr int kNotFinite = 3;                  // the figure of that name
  static constexpr int kLargeLosses = 4;                // the first of those
  static constexpr double kLossScale = 16777216.0;      // 2^24 steps per unit of loss
  static constexpr double kLossBase = 1099511627776.0;  // 2^40
  static constexpr double kLargestUnit = 0x1p136;       // of the last of the large losses
  using Figures = std::array<std::int64_t, kFigures>;

  std::int64_t loss_steps = 0;  // the last digit: the sum of losses in units of 1 / kLossScale, unless some are large
  std::int64_t correct = 0;     // samples whose largest logit (the first of equals) is the label's
  std::int64_t samples = 0;
  std::int64_t not_finite = 0;                 // calls whose loss was NaN or infinite
  std::array<std::int64_t, 4> large_losses{};  // of losses of 2^16 and more: units of 2^16, 2^56, 2^96 and 2^136

  // In the order in which devices keep them.
  Figures figures() const {
    Figures figures{loss_steps, correct, samples, not_finite};
    for (std::size_t i = 0; i < large_losses.size(); ++i) figures[kLargeLosses + i] = large_losses[i];
    return figures;
  }
  static LossSums from(const Figures& figures) {
    LossSums sums{figures[0], figures[1], figures[2], figures[kNotFinite]};
    for (std::size_t i = 0; i < sums.large_losses.size(); ++i) sums.large_losses[i] = figures[kLargeLosses + i];
    return sums;
  }
  // The loss of one call.
  void add_loss(double loss) {
    if (!std::isfinite(loss)) {
      ++not_finite;
      return;
    }
    // Exact but for the last digit.
    double unit = kLargestUnit;
    for (std::size_t i = large_losses.size(); i-- > 0; unit /= kLossBase) {
      const double digit = std::trunc(loss / unit);
      large_losses[i] += static_cast<std::int64_t>(digit);
      loss -= digit * unit;
    }
    loss_steps += std::llrint(loss * kLossScale);
  }

  // NaN where not all of it was finite.
  double loss() const {
    if (not_finite > 0) return std::numeric_limits<double>::quiet_NaN();
    double loss = 0;
    double unit = kLargestUnit;
    for (std::size_t i = large_losses.size(); i-- > 0; unit /= kLossBase) {
      loss += static_cast<double>(large_losses[i]) * unit;
    }
    return loss + static_cast<double>(loss_steps) / kLossScale;
  }
  double mean_loss() const { return loss() / static_cast<double>(samples); }
  double accuracy() const { return static_cast<double>(correct) / static_cast<double>(samples); }
  friend bool operator==(const LossSums&, const LossSums&) = default;
  friend LossSums operator+(const LossSums& one, const LossSums& other) { return combine<std::plus<>>(one, other); }
  friend LossSums operator-(const LossSums& one, const LossSums& other) { return combine<std::minus<>>(one, other); }

 private:
  // Modulo 2^64, as devices add.
  template <class Operation>
  static LossSums combine(const LossSums& one, const LossSums& other) {
    Figures figures = one.figures();
    const Figures others = other.figures();
    for (std::size_t i = 0; i < figures.size(); ++i) {
      figures[i] = static_cast<std::int64_t>(
          Operation{}(static_cast<std::uint64_t>(figures[i]), static_cast<std::uint64_t>(others[i])));
    }
    return from(figures);
  }
};

struct LossPass {
  const void* logits = nullptr;
  const std::int32_t* labels = nullptr;  // 0 .. classes - 1, in the device's memory
  float gradient_scale = 0;              // 1 / samples of the global batch
  Tensor sums;                           // i64 [LossSums::kFigures], added to
  void* logits_gradient = nullptr;       // null in evaluation
};

// Softmax cross-entropy over the logits of a batch.
class LossLayer {
 public:
  virtual ~LossLayer() = default;
  // Asynchronous.
  virtual void run(Stream& stream, const LossPass& pass) = 0;
};

}  // namespace tutti
