#pragma once
// Seam A: what a processor can do. Hold memory, order work, run one layer, and the few flat vector operations that
// the optimizer and the exchange need. Networks, ranks and files are unknown here.

#include "tutti/backend/layer.hpp"
#include "tutti/backend/layer_spec.hpp"
#include "tutti/backend/stream.hpp"
#include "tutti/backend/tensor.hpp"

#include <cstddef>
#include <memory>
#include <span>
#include <string>

namespace tutti {

// One step of stochastic gradient descent over flat f32 blocks of equal length, with PyTorch's meaning:
//   g += weight_decay * w;  v = momentum * v + g;  w -= learning_rate * (nesterov ? g + momentum * v : v)
// Without momentum the velocity may be an empty tensor.
struct SgdStep {
  Tensor weights;
  Tensor gradients;  // left unchanged
  Tensor velocity;
  float learning_rate = 0;
  float momentum = 0;
  float weight_decay = 0;
  bool nesterov = false;
};

class Backend {
 public:
  virtual ~Backend() = default;

  // For the banner and the run record: "cpu: AVX-512, oneDNN 2.6.3".
  virtual std::string description() const = 0;
  virtual MemorySpace memory_space() const = 0;

  // To be called once in every thread that makes layers or runs them, before it does either.
  virtual void enter_compute_thread(int threads) = 0;

  // Zeroed memory, aligned to 64 bytes at least.
  virtual Buffer allocate(std::size_t bytes) = 0;
  virtual std::unique_ptr<Stream> make_stream() = 0;

  // Between tensors of equal bytes, this processor's or the host's. Asynchronous.
  virtual void copy(Stream& stream, const Tensor& to, const Tensor& from) = 0;
  virtual void fill_zero(Stream& stream, const Tensor& tensor) = 0;
  // to += from, f32, element by element. Asynchronous.
  virtual void add(Stream& stream, const Tensor& to, const Tensor& from) = 0;
  // Asynchronous.
  virtual void sgd_step(Stream& stream, const SgdStep& step) = 0;

  // A dense f32 batch in canonical order: what a loader delivers and a network's first layer takes.
  virtual ActivationSpec plain_activation(const Shape& shape) = 0;
  // Between this backend's layout of an activation, or of its gradient, and dense f32 in canonical order in memory of
  // this backend: for predictions, and for looking inside. Makes its plan anew each time, so not for every step.
  // Asynchronous.
  virtual void to_plain(Stream& stream, const ActivationSpec& activation, const void* from, const Tensor& to) = 0;
  virtual void from_plain(Stream& stream, const ActivationSpec& activation, const Tensor& from, void* to) = 0;
  // `values` are canonical, in the order of parameters(spec, sample). Borrowed. Not yet refreshed.
  virtual std::unique_ptr<LayerWeights> make_weights(const LayerSpec& spec, std::span<const Tensor> values) = 0;
  virtual std::unique_ptr<Layer> make_layer(const LayerSpec& spec, const LayerRequest& request) = 0;
  // `logits` is N x classes, in any format of this backend.
  virtual std::unique_ptr<LossLayer> make_softmax_loss(const ActivationSpec& logits) = 0;
};

// The processor of this machine through oneDNN; the instruction set is chosen at run time.
std::unique_ptr<Backend> make_cpu_backend();

// The name and version of the library under the CPU backend.
std::string cpu_library_version();

}  // namespace tutti
