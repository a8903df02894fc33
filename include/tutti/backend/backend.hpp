#pragma once
// What a processor can do: provide memory, order work, run one layer, and compute the few flat vector operations that
// the optimizer and the exchange need. It knows nothing of networks, ranks and files.

#include "tutti/backend/fixed_point.hpp"
#include "tutti/backend/image_store.hpp"
#include "tutti/backend/layer.hpp"
#include "tutti/backend/layer_spec.hpp"
#include "tutti/backend/precision.hpp"
#include "tutti/backend/stream.hpp"
#include "tutti/backend/tensor.hpp"

#include <cstddef>
#include <functional>
#include <memory>
#include <span>
#include <string>

namespace tutti {

// One step of stochastic gradient descent over flat f32 blocks of equal length, with PyTorch's meaning:
//   g = (g * gradient_factor + weight_decay * w) * rate_factor;  v = momentum * v + g;
//   w -= learning_rate * (nesterov ? g + momentum * v : v)
// Factors are f32 [1] in this processor's memory; an empty tensor stands for 1. Without momentum the velocity may be
// an empty tensor.
struct SgdStep {
  Tensor weights;
  Tensor gradients;  // left unchanged
  Tensor velocity;
  float learning_rate = 0;
  float momentum = 0;
  float weight_decay = 0;
  bool nesterov = false;
  Tensor gradient_factor{};
  Tensor rate_factor{};
};

// One step of AdamW over flat f32 blocks of equal length, with PyTorch's meaning (decoupled decay, corrected bias):
//   g = g * gradient_factor;  w -= rate * weight_decay * w;  m = beta1 * m + (1 - beta1) * g;
//   v = beta2 * v + (1 - beta2) * g^2;  w -= rate * (m / (1 - beta1^step)) / (sqrt(v / (1 - beta2^step)) + epsilon)
struct AdamWStep {
  Tensor weights;
  Tensor gradients;  // left unchanged
  Tensor first_moment;
  Tensor second_moment;
  double learning_rate = 0;
  double beta1 = 0.9;
  double beta2 = 0.999;
  double epsilon = 1e-8;
  double weight_decay = 0;
  std::int64_t step = 1;  // counted from 1
  Tensor gradient_factor{};
};

// For each of n tensors: factor = trust * |w| / (|g| * gradient_factor + weight_decay * |w|), 1 where either norm is 0.
struct TrustFactors {
  Tensor weight_squares;     // f64 [n]
  Tensor gradient_squares;   // f64 [n]
  Tensor gradient_factor{};  // f32 [1], or empty
  double trust = 0.001;
  double weight_decay = 0;
  Tensor factors;  // f32 [n]
};

// A tensor of f32, i32 or i64, and what its digest starts with (base/digest.hpp).
struct DigestedTensor {
  Tensor values;
  std::uint64_t start = 0;
};

// Looks for NaN and infinity among elements place .. place + n - 1 of a block that is cut into slices, as for
// fixed-point sums. All tensors are in this processor's memory.
struct NotFiniteSearch {
  Tensor values;           // f32 [n]
  Tensor ends;             // i64 [slices], ascending: the element of the block behind each slice
  std::int64_t place = 0;  // of values in the block
  Tensor found;            // i32 [1]: raised to slices - s, where s counts from 0 and is the first slice that has one
  Tensor only_if{};        // i32 [1], or empty: where it is 0 the search is skipped
};

class Backend {
 public:
  virtual ~Backend() = default;

  // For the banner and the run record: "cpu: AVX-512, oneDNN 2.6.3".
  virtual std::string description() const = 0;
  virtual MemorySpace memory_space() const = 0;

  // Every thread that makes or runs layers calls this once, before it does either.
  virtual void enter_compute_thread(int threads) = 0;

  // Zeroed memory, aligned to 64 bytes at least.
  virtual Buffer allocate(std::size_t bytes) = 0;
  virtual std::unique_ptr<Stream> make_stream() = 0;
  virtual std::unique_ptr<Event> make_event() { return std::make_unique<Event>(); }

  // Processors with a queue and memory of their own override the following.
  // Zeroed host memory that copies reach without waiting.
  virtual Buffer allocate_staging(std::size_t bytes) { return allocate(bytes); }
  // An event that knows when it was reached. Null where work is done at once.
  virtual std::unique_ptr<Event> make_timed_event() { return nullptr; }
  // Names what the calling thread does from here on, for the processor's profilers.
  virtual void begin_range(const char* name) { static_cast<void>(name); }
  // Null where images are best read from the host's memory, and where there is no room for these.
  virtual std::unique_ptr<ImageStore> hold_images(const HeldImages&) { return nullptr; }
  // Captures the work that `enqueue` puts on the stream, without doing it; everything must have been done once before.
  // Null, with `enqueue` not called, where graphs gain nothing.
  virtual std::unique_ptr<Graph> capture(Stream&, const std::function<void()>& enqueue) {
    static_cast<void>(enqueue);
    return nullptr;
  }
  // What was chosen by timing, as lines of text that each stand alone. When they are adopted before any layer is made,
  // the same is chosen again. False where no line is for this kind of processor and library.
  virtual std::string choices() const { return {}; }
  virtual bool adopt_choices(const std::string& lines) { return lines.empty(); }

  // Between tensors of equal bytes, this processor's or the host's. Asynchronous.
  virtual void copy(Stream& stream, const Tensor& to, const Tensor& from) = 0;
  virtual void fill_zero(Stream& stream, const Tensor& tensor) = 0;
  // to += from, f32, element by element. Asynchronous.
  virtual void add(Stream& stream, const Tensor& to, const Tensor& from) = 0;
  // to = (1 - share) * to + share * from, f32, element by element. Asynchronous.
  virtual void blend(Stream& stream, const Tensor& to, const Tensor& from, float share) = 0;
  // Fixed-point sums, and the values that they stand for. Every thread computes the same bits, however it treats
  // denormal numbers, except that denormal values may count as 0. Asynchronous.
  virtual void to_fixed_point(Stream& stream, const FixedPointGrid& grid, const ToFixedPoint& request) = 0;
  virtual void from_fixed_point(Stream& stream, const FixedPointGrid& grid, const FromFixedPoint& request) = 0;
  // Asynchronous.
  virtual void find_not_finite(Stream& stream, const NotFiniteSearch& search) = 0;
  virtual void sgd_step(Stream& stream, const SgdStep& step) = 0;
  virtual void adamw_step(Stream& stream, const AdamWStep& step) = 0;
  // Writes the sum of squares of each f32 tensor into f64 [tensors.size()]. Squares are added in f64 over fixed blocks
  // of 4,096 elements, then block by block, so that a sum depends on the values alone. Asynchronous.
  virtual void sum_squares(Stream& stream, std::span<const Tensor> tensors, const Tensor& sums) = 0;
  // sums[i], f64 [n], = the sum, in order, of values[ends[i - 1]] up to but without values[ends[i]], where values are
  // f64 and ends i64 [n], ascending. Asynchronous.
  virtual void sum_runs(Stream& stream, const Tensor& values, const Tensor& ends, const Tensor& sums) = 0;
  // factor, f32 [1], = min(1, most / (norm + 1e-6)), the norm being the root of the sum of `squares`, f64 [n].
  // Asynchronous.
  virtual void clip_factor(Stream& stream, const Tensor& squares, double most, const Tensor& factor) = 0;
  virtual void trust_factors(Stream& stream, const TrustFactors& request) = 0;
  // Adds the digest of each tensor, as base/digest.hpp defines it, to its element of `digests`, i64 [tensors.size()].
  // Asynchronous.
  virtual void add_digests(Stream& stream, std::span<const DigestedTensor> tensors, const Tensor& digests) = 0;

  // A dense f32 batch in canonical order: what a loader delivers and a network's first layer takes.
  virtual ActivationSpec plain_activation(const Shape& shape) = 0;
  // Copies an activation, or its gradient, to dense f32 in canonical order in memory of this backend. For predictions
  // and inspection: the plan is made anew each time. Asynchronous.
  virtual void to_plain(Stream& stream, const ActivationSpec& activation, const void* from, const Tensor& to) = 0;
  // `values` are canonical, in the order of parameters(spec, sample). Borrowed. The weights are not yet refreshed.
  virtual std::unique_ptr<LayerWeights> make_weights(const LayerSpec& spec, std::span<const Tensor> values) = 0;
  // Refreshes the weights of all these layers, at once where that is faster. Asynchronous.
  virtual void refresh(Stream& stream, std::span<LayerWeights* const> layers) {
    for (LayerWeights* const layer : layers) layer->refresh(stream);
  }
  virtual std::unique_ptr<Layer> make_layer(const LayerSpec& spec, const LayerRequest& request) = 0;
  // `logits` is N x classes, in any format of this backend. The loss is against a target of 1 - smoothing for the
  // label's class plus smoothing / classes for every class.
  virtual std::unique_ptr<LossLayer> make_softmax_loss(const ActivationSpec& logits, double smoothing = 0) = 0;
};

// The processor of this machine through oneDNN; the instruction set is chosen at run time. With bf16, activations and
// weights are bf16 inside the layers, while canonical weights, statistics and sums are f32. Throws a usage error where
// the processor cannot compute in this precision. Where they are faster, our own loops compute convolutions with 3x3 or
// 5x5 windows, by tiles, and first layers; they round differently. `direct` leaves all convolutions to oneDNN.
enum class Convolutions { tiled, direct };
std::unique_ptr<Backend> make_cpu_backend(Precision precision = Precision::fp32,
                                          Convolutions convolutions = Convolutions::tiled);

// The name and version of the library under the CPU backend.
std::string cpu_library_version();

}  // namespace tutti
