// A backend for rehearsals (--rehearse wrong): it passes everything on, but its layers write wrong values.

#include "tutti/base/random.hpp"
#include "tutti/watch/rehearsal.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

namespace tutti {
namespace {

std::int64_t words_in(std::size_t bytes) { return static_cast<std::int64_t>(bytes / sizeof(std::int32_t)); }

}  // namespace

class RehearsedLayer final : public Layer {
 public:
  RehearsedLayer(Backend& backend, FaultInjector& faults, const LayerRequest& request, std::unique_ptr<Layer> inner)
      : backend_(backend), faults_(faults), request_(request), inner_(std::move(inner)) {}

  const ActivationSpec& output() const override { return inner_->output(); }
  bool reads_input() const override { return inner_->reads_input(); }
  bool reads_output() const override { return inner_->reads_output(); }
  bool residual_gradient_in_place() const override { return inner_->residual_gradient_in_place(); }
  void set_batch_position(Stream& stream, const BatchPosition& place) override {
    place_ = place;
    inner_->set_batch_position(stream, place);
  }
  void forward(Stream& stream, const LayerForward& pass) override {
    inner_->forward(stream, pass);
    falsify(stream, Phase::forward, {words(pass.output, inner_->output().bytes)});
  }
  void backward(Stream& stream, const LayerBackward& pass) override {
    inner_->backward(stream, pass);
    std::vector<Tensor> written;
    for (const Tensor& gradient : pass.gradients) written.push_back(words(gradient.data, gradient.bytes()));
    if (pass.input_gradient != nullptr) written.push_back(words(pass.input_gradient, request_.input.bytes));
    if (pass.residual_gradient != nullptr) written.push_back(words(pass.residual_gradient, request_.residual.bytes));
    falsify(stream, Phase::backward, written);
  }

 private:
  Tensor words(void* data, std::size_t bytes) const {
    return {data, Shape{words_in(bytes)}, ElementType::i32, backend_.memory_space()};
  }
  void falsify(Stream& stream, Phase pass, const std::vector<Tensor>& written) {
    faults_.falsify(backend_, stream,
                    {.purpose = request_.random_purpose,
                     .pass = pass,
                     .first_position = place_.first_position,
                     .samples = request_.input.shape[0],
                     .words = written});
  }

  Backend& backend_;
  FaultInjector& faults_;
  LayerRequest request_;
  std::unique_ptr<Layer> inner_;
  BatchPosition place_;
};

// Without graphs, since a fault is injected while its layer is enqueued.
class RehearsedBackend final : public Backend {
 public:
  RehearsedBackend(Backend& inner, FaultInjector& faults) : inner_(inner), faults_(faults) {}

  std::unique_ptr<Layer> make_layer(const LayerSpec& spec, const LayerRequest& request) override {
    auto layer = inner_.make_layer(spec, request);
    if (request.mode != LayerMode::training) return layer;
    return std::make_unique<RehearsedLayer>(inner_, faults_, request, std::move(layer));
  }

  std::string description() const override { return inner_.description(); }
  MemorySpace memory_space() const override { return inner_.memory_space(); }
  void enter_compute_thread(int threads) override { inner_.enter_compute_thread(threads); }
  Buffer allocate(std::size_t bytes) override { return inner_.allocate(bytes); }
  std::unique_ptr<Stream> make_stream() override { return inner_.make_stream(); }
  std::unique_ptr<Event> make_event() override { return inner_.make_event(); }
  Buffer allocate_staging(std::size_t bytes) override { return inner_.allocate_staging(bytes); }
  std::unique_ptr<Event> make_timed_event() override { return inner_.make_timed_event(); }
  void begin_range(const char* name) override { inner_.begin_range(name); }
  std::unique_ptr<ImageStore> upload_dataset(const ImageSet& images) override { return inner_.upload_dataset(images); }
  std::string algorithm_cache() const override { return inner_.algorithm_cache(); }
  bool load_algorithm_cache(const std::string& lines) override { return inner_.load_algorithm_cache(lines); }
  void copy(Stream& stream, const Tensor& to, const Tensor& from) override { inner_.copy(stream, to, from); }
  void fill_zero(Stream& stream, const Tensor& tensor) override { inner_.fill_zero(stream, tensor); }
  void add(Stream& stream, const Tensor& to, const Tensor& from) override { inner_.add(stream, to, from); }
  void blend(Stream& stream, const Tensor& to, const Tensor& from, float share) override {
    inner_.blend(stream, to, from, share);
  }
  void convert(Stream& stream, const Tensor& to, const Tensor& from) override { inner_.convert(stream, to, from); }
  void to_fixed_point(Stream& stream, const FixedPointGrid& grid, const ToFixedPoint& request) override {
    inner_.to_fixed_point(stream, grid, request);
  }
  void from_fixed_point(Stream& stream, const FixedPointGrid& grid, const FromFixedPoint& request) override {
    inner_.from_fixed_point(stream, grid, request);
  }
  void find_not_finite(Stream& stream, const NotFiniteSearch& search) override {
    inner_.find_not_finite(stream, search);
  }
  void sgd_step(Stream& stream, const SgdStep& step) override { inner_.sgd_step(stream, step); }
  void adamw_step(Stream& stream, const AdamWStep& step) override { inner_.adamw_step(stream, step); }
  void sum_squares(Stream& stream, std::span<const Tensor> tensors, const Tensor& sums) override {
    inner_.sum_squares(stream, tensors, sums);
  }
  void sum_runs(Stream& stream, const Tensor& values, const Tensor& ends, const Tensor& sums) override {
    inner_.sum_runs(stream, values, ends, sums);
  }
  void clip_factor(Stream& stream, const Tensor& squares, double max_norm, const Tensor& factor) override {
    inner_.clip_factor(stream, squares, max_norm, factor);
  }
  void trust_factors(Stream& stream, const TrustFactors& request) override { inner_.trust_factors(stream, request); }
  void add_digests(Stream& stream, std::span<const DigestedTensor> tensors, const Tensor& digests) override {
    inner_.add_digests(stream, tensors, digests);
  }
  ActivationSpec plain_activation(const Shape& shape) override { return inner_.plain_activation(shape); }
  void to_plain(Stream& stream, const ActivationSpec& activation, const void* from, const Tensor& to) override {
    inner_.to_plain(stream, activation, from, to);
  }
  std::unique_ptr<LayerWeights> make_weights(const LayerSpec& spec, std::span<const Tensor> values) override {
    return inner_.make_weights(spec, values);
  }
  void refresh(Stream& stream, std::span<LayerWeights* const> layers) override { inner_.refresh(stream, layers); }
  std::unique_ptr<LossLayer> make_softmax_loss(const ActivationSpec& logits, const LossOptions& options) override {
    return inner_.make_softmax_loss(logits, options);
  }

 private:
  Backend& inner_;
  FaultInjector& faults_;
};

std::unique_ptr<Backend> FaultInjector::wrap(Backend& backend) {
  return std::make_unique<RehearsedBackend>(backend, *this);
}

void FaultInjector::falsify(Backend& backend, Stream& stream, const LayerResults& results) {
  const std::scoped_lock lock(mutex_);
  std::int64_t words = 0;
  for (const Tensor& tensor : results.words) words += tensor.elements();
  for (Planned& planned : wrong_) {
    const Fault& fault = planned.fault;
    const bool is_done = fault.first_step == fault.last_step && planned.last_injected;
    const std::int64_t position = fault.wrong.position - results.first_position;
    if (step_ < fault.first_step || step_ > fault.last_step || is_done || words == 0 || results.pass != fault.phase ||
        results.purpose != random_purpose(fault.wrong.layer) ||
        (fault.wrong.position >= 0 && (position < 0 || position >= results.samples))) {
      continue;
    }
    std::int64_t element = fault.wrong.element % words;
    auto tensor = results.words.begin();
    while (element >= tensor->elements()) element -= (tensor++)->elements();
    const Tensor place = elements_of(*tensor, {element, element + 1});
    std::uint32_t word = 0;
    const Tensor on_host{&word, Shape{1}, ElementType::i32, MemorySpace::host};
    backend.copy(stream, on_host, place);
    stream.synchronize();
    const std::uint32_t right = std::exchange(word, wrong_word(fault.wrong, word));
    if (!planned.last_injected) {
      log_.warn(
          fmt::format("rehearsal (step {}): {}, {:08x} instead of {:08x}", step_.load(), text_of(fault), word, right));
    }
    planned.last_injected = step_;
    backend.copy(stream, place, on_host);
    stream.synchronize();
  }
}

}  // namespace tutti
