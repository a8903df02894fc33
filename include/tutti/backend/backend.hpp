#pragma once
// The interface that every processor type implements: memory, streams, layers, and the flat vector operations of the
// optimizer and the exchange. It does not depend on networks, ranks or files.

#include "tutti/backend/fixed_point.hpp"
#include "tutti/backend/image_store.hpp"
#include "tutti/backend/layer.hpp"
#include "tutti/backend/layer_spec.hpp"
#include "tutti/backend/optimizer_steps.hpp"
#include "tutti/backend/precision.hpp"
#include "tutti/backend/stream.hpp"
#include "tutti/backend/tensor.hpp"

#include <cstddef>
#include <functional>
#include <memory>
#include <span>
#include <string>

namespace tutti {

// A tensor of f32, i32 or i64, and the initial value of its digest (base/digest.hpp).
struct DigestedTensor {
  Tensor values;
  std::uint64_t start = 0;
};

// Searches elements offset .. offset + n - 1 of a block for NaN and infinity. The block is divided into slices, as for
// fixed-point sums. All tensors are in this processor's memory.
struct NotFiniteSearch {
  Tensor values;            // f32 [n]; or bf16, if they are unfinished gradients
  Tensor ends;              // i64 [slices], ascending: the end of each slice, exclusive
  std::int64_t offset = 0;  // of `values` in the block
  Tensor found;             // i32 [1]: atomic max with slices - s, where s is the first slice that has one
  Tensor only_if{};         // i32 [1], or empty: where it is 0 the search is skipped
};

// Gradients that a backward pass left unfinished, and the layers to refresh. All borrowed.
struct UnfinishedUpdate {
  UnfinishedGradients& gradients;
  std::span<LayerWeights* const> layers;
};

// The elements of a block of Backend::sum_squares.
inline constexpr std::int64_t kNormBlock = 4096;

class Backend {
 public:
  virtual ~Backend() = default;

  // The text for the banner and the run record: "cpu: AVX-512".
  virtual std::string description() const = 0;
  virtual MemorySpace memory_space() const = 0;

  // Every thread calls this once, before it makes or runs layers.
  virtual void enter_compute_thread(int threads) = 0;

  // Zeroed memory, aligned to 64 bytes at least.
  virtual Buffer allocate(std::size_t bytes) = 0;
  virtual std::unique_ptr<Stream> make_stream() = 0;
  virtual std::unique_ptr<Event> make_event() { return std::make_unique<Event>(); }

  // Processors with their own memory and queue override the following.
  // Zeroed host memory for asynchronous copies: pinned on GPUs.
  virtual Buffer allocate_staging(std::size_t bytes) { return allocate(bytes); }
  // An event that records its time. Null on processors that run work immediately.
  virtual std::unique_ptr<Event> make_timed_event() { return nullptr; }
  // Starts a named profiler range (NVTX) in the calling thread and ends the one before.
  virtual void begin_range(const char* name) { static_cast<void>(name); }
  // Copies a data set into the processor's memory. Null on CPUs, and if it does not fit.
  virtual std::unique_ptr<ImageStore> upload_dataset(const ImageSet&) { return nullptr; }
  // Captures the work that `enqueue` puts on the stream as a graph, without running it. The same work must have run
  // once before. Null if the work cannot be captured, and on backends without graphs, which do not call `enqueue`.
  virtual std::unique_ptr<Graph> capture(Stream&, const std::function<void()>& enqueue) {
    static_cast<void>(enqueue);
    return nullptr;
  }
  // The algorithms that were chosen by timing, one self-contained line of text each. Loading them before any layer is
  // made reproduces the choice. False if no line is for this processor and library version.
  virtual std::string algorithm_cache() const { return {}; }
  virtual bool load_algorithm_cache(const std::string& lines) { return lines.empty(); }

  // Copies between tensors of equal size, each in this processor's or the host's memory. Asynchronous. Only memory of
  // allocate_staging() must stay unchanged until the copy is done.
  virtual void copy(Stream& stream, const Tensor& to, const Tensor& from) = 0;
  virtual void fill_zero(Stream& stream, const Tensor& tensor) = 0;
  // to += from, f32, element by element. Asynchronous.
  virtual void add(Stream& stream, const Tensor& to, const Tensor& from) = 0;
  // to = (1 - share) * to + share * from, f32, element by element. Asynchronous.
  virtual void blend(Stream& stream, const Tensor& to, const Tensor& from, float share) = 0;
  // Converts f32 to bf16, rounding to nearest even, or bf16 to f32. NaN stays NaN. Asynchronous.
  virtual void convert(Stream& stream, const Tensor& to, const Tensor& from) = 0;
  // Convert to and from fixed-point sums. The result does not depend on the thread's denormal mode, except that
  // denormal values may count as 0. Asynchronous.
  virtual void to_fixed_point(Stream& stream, const FixedPointGrid& grid, const ToFixedPoint& request) = 0;
  virtual void from_fixed_point(Stream& stream, const FixedPointGrid& grid, const FromFixedPoint& request) = 0;
  // Asynchronous.
  virtual void find_not_finite(Stream& stream, const NotFiniteSearch& search) = 0;
  virtual void sgd_step(Stream& stream, const SgdStep& step) = 0;
  virtual void adamw_step(Stream& stream, const AdamWStep& step) = 0;
  // Many of these, of which none uses what another writes, in one kernel if that is faster.
  virtual void find_all_not_finite(Stream& stream, std::span<const NotFiniteSearch> searches) {
    for (const NotFiniteSearch& search : searches) find_not_finite(stream, search);
  }
  virtual void sgd_steps(Stream& stream, std::span<const SgdStep> steps) {
    for (const SgdStep& step : steps) sgd_step(stream, step);
  }
  virtual void adamw_steps(Stream& stream, std::span<const AdamWStep> steps) {
    for (const AdamWStep& step : steps) adamw_step(stream, step);
  }
  // Writes the sum of squares of each f32 tensor into f64 [tensors.size()]. Squares are added in f64 over fixed blocks
  // of kNormBlock elements, then block by block, so that a sum depends only on the values. Asynchronous.
  virtual void sum_squares(Stream& stream, std::span<const Tensor> tensors, const Tensor& sums) = 0;
  // sums[i], f64 [n], = the sum, in order, of values[ends[i - 1]] .. values[ends[i] - 1]. Values are f64, ends are i64
  // [n], ascending. Asynchronous.
  virtual void sum_runs(Stream& stream, const Tensor& values, const Tensor& ends, const Tensor& sums) = 0;
  // factor, f32 [1], = min(1, max_norm / (norm + 1e-6)), where norm is the square root of the sum of `squares`, f64
  // [n]. Asynchronous.
  virtual void clip_factor(Stream& stream, const Tensor& squares, double max_norm, const Tensor& factor) = 0;
  virtual void trust_factors(Stream& stream, const TrustFactors& request) = 0;
  // Adds the digest of each tensor, as base/digest.hpp defines it, to its element of `digests`, i64 [tensors.size()].
  // Asynchronous.
  virtual void add_digests(Stream& stream, std::span<const DigestedTensor> tensors, const Tensor& digests) = 0;

  // A dense f32 batch in canonical order: the loader's output and the first layer's input.
  virtual ActivationSpec plain_activation(const Shape& shape) = 0;
  // Copies an activation, or its gradient, to dense f32 in canonical order in memory of this backend. It serves
  // predictions and inspection, and is slow. Asynchronous.
  virtual void to_plain(Stream& stream, const ActivationSpec& activation, const void* from, const Tensor& to) = 0;
  // `values` are canonical, in the order of parameters(spec, sample). Borrowed. Call refresh() before using them.
  virtual std::unique_ptr<LayerWeights> make_weights(const LayerSpec& spec, std::span<const Tensor> values) = 0;
  // Refreshes the weights of all these layers, in one kernel if that is faster. Asynchronous.
  virtual void refresh(Stream& stream, std::span<LayerWeights* const> layers) {
    for (LayerWeights* const layer : layers) layer->refresh(stream);
  }
  // For backward passes whose gradients are finished together, in one kernel. Null if that is not faster.
  virtual std::unique_ptr<UnfinishedGradients> make_unfinished_gradients() { return nullptr; }
  // These steps with unfinished gradients, and the refresh of these layers, in one pass over the memory where that is
  // possible. The canonical gradients are then unspecified. Asynchronous.
  virtual void update(Stream& stream, const UnfinishedUpdate& update, std::span<const SgdStep> steps) {
    update.gradients.finish(stream);
    sgd_steps(stream, steps);
    refresh(stream, update.layers);
  }
  virtual void update(Stream& stream, const UnfinishedUpdate& update, std::span<const AdamWStep> steps) {
    update.gradients.finish(stream);
    adamw_steps(stream, steps);
    refresh(stream, update.layers);
  }
  virtual std::unique_ptr<Layer> make_layer(const LayerSpec& spec, const LayerRequest& request) = 0;
  // `logits` is N x classes, in any format of this backend.
  virtual std::unique_ptr<LossLayer> make_softmax_loss(const ActivationSpec& logits,
                                                       const LossOptions& options = {}) = 0;
};

// The CPU backend. The instruction set is chosen at run time and changes no bit of any result. With bf16, activations
// are bf16, while weights, statistics and sums are f32. Throws a usage error for tf32.
std::unique_ptr<Backend> make_cpu_backend(Precision precision = Precision::fp32);

}  // namespace tutti
