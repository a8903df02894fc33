#pragma once
// A backend for tests of code that runs layers. Its layers check that the values that they declared to read in backward
// are those of forward, destroy the gradients given to them, and record their calls.

#include "tutti/backend/backend.hpp"
#include "tutti/base/digest.hpp"

#include "nn/fake_math.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cstdlib>
#include <cstring>
#include <limits>

namespace tutti::testing_support {

struct FakeTraits {
  bool reads_input = true;
  bool reads_output = true;
  bool residual_gradient_in_place = false;
};

struct FakeCall {
  std::uint32_t random_purpose = 0;
  BatchPosition place{};
  std::size_t output_gradients = 0;
  bool wants_input_gradient = false;  // of the request
  bool gives_input_gradient = false;  // of the pass
};

// The records that tests read.
struct FakeLog {
  std::function<FakeTraits(std::uint32_t random_purpose)> traits = [](std::uint32_t) { return FakeTraits{}; };
  std::vector<FakeCall> forward;
  std::vector<FakeCall> backward;
  std::vector<float> logits;
  double smoothing = 0;  // of the loss last run
  int enqueued = 0;      // operations that the host enqueued, executed at once or captured

  using Operations = std::vector<std::function<void()>>;
  std::shared_ptr<Operations> captured{};  // while work is captured

  void enqueue(std::function<void()> operation) {
    ++enqueued;
    if (captured) return captured->push_back(std::move(operation));
    operation();
  }
};

inline std::span<float> floats(const void* data, std::size_t count) {
  return {static_cast<float*>(const_cast<void*>(data)), count};
}
inline Values values_at(const void* data, std::size_t count) {
  const auto span = floats(data, count);
  return {span.begin(), span.end()};
}
inline void write(void* to, const Values& values) { std::ranges::copy(values, static_cast<float*>(to)); }

struct FakeWeights : LayerWeights {
  FakeWeights(FakeLog& of_backend, std::span<const Tensor> tensors)
      : log(of_backend), values(tensors.begin(), tensors.end()) {}
  void refresh(Stream&) override {
    log.enqueue([this] { ++refreshed; });
  }
  FakeLog& log;
  std::vector<Tensor> values;
  int refreshed = 0;
};

class FakeLayer final : public Layer {
 public:
  FakeLayer(FakeLog& log, const LayerSpec& spec, const LayerRequest& request)
      : log_(log), spec_(spec), request_(request), traits_(log.traits(request.random_purpose)) {
    const Shape shape = output_shape(spec, request.input.shape.without_first()).batch_of(request.input.shape[0]);
    output_ = {shape, nullptr, static_cast<std::size_t>(shape.elements()) * sizeof(float)};
  }

  const ActivationSpec& output() const override { return output_; }
  bool reads_input() const override { return traits_.reads_input; }
  bool reads_output() const override { return traits_.reads_output; }
  bool residual_gradient_in_place() const override { return traits_.residual_gradient_in_place; }

  void set_batch_position(Stream&, const BatchPosition& place) override { place_ = place; }

  void forward(Stream&, const LayerForward& pass) override {
    log_.enqueue([this, pass] { do_forward(pass); });
  }

  void backward(Stream&, const LayerBackward& pass) override {
    log_.enqueue([this, pass = pass, blocks = std::vector(pass.output_gradients.begin(), pass.output_gradients.end()),
                  gradients = std::vector(pass.gradients.begin(), pass.gradients.end())]() mutable {
      pass.output_gradients = blocks;
      pass.gradients = gradients;
      do_backward(pass);
    });
  }

 private:
  void do_forward(const LayerForward& pass) {
    log_.forward.push_back({.random_purpose = request_.random_purpose, .place = place_});
    input_ = values_at(pass.input, inputs());
    EXPECT_EQ(pass.residual != nullptr, takes_residual(spec_));
    if (pass.residual != nullptr) residual_ = values_at(pass.residual, outputs());
    result_ = fake_forward(state());
    write(pass.output, result_);
    result_ = values_at(pass.output, outputs());
  }

  void do_backward(const LayerBackward& pass) {
    EXPECT_EQ(request_.mode, LayerMode::training);
    EXPECT_TRUE(!reads_input() || values_at(pass.input, inputs()) == input_) << type_name(spec_);
    EXPECT_TRUE(!reads_output() || values_at(pass.output, outputs()) == result_) << type_name(spec_);
    log_.backward.push_back({.random_purpose = request_.random_purpose,
                             .output_gradients = pass.output_gradients.size(),
                             .wants_input_gradient = request_.wants_input_gradient,
                             .gives_input_gradient = pass.input_gradient != nullptr});
    Values gradient(outputs());
    for (void* const part : pass.output_gradients) {
      const auto addends = floats(part, outputs());
      for (std::size_t i = 0; i < gradient.size(); ++i) gradient[i] += addends[i];
      std::ranges::fill(addends, std::numeric_limits<float>::quiet_NaN());
    }
    const FakeGradients result = fake_backward(state(), result_, std::move(gradient), pass.sample_fraction);
    if (pass.input_gradient != nullptr) write(pass.input_gradient, result.input);
    if (pass.residual_gradient != nullptr) {
      EXPECT_EQ(pass.residual_gradient == pass.output_gradients[0], residual_gradient_in_place());
      write(pass.residual_gradient, result.residual);
    }
    ASSERT_EQ(pass.gradients.size(), result.parameters.size());
    for (std::size_t i = 0; i < result.parameters.size(); ++i) write(pass.gradients[i].data, result.parameters[i]);
  }

  std::size_t inputs() const { return static_cast<std::size_t>(request_.input.shape.elements()); }
  std::size_t outputs() const { return static_cast<std::size_t>(output_.shape.elements()); }
  FakePass state() const {
    FakePass pass{.spec = spec_,
                  .channels = static_cast<std::size_t>(request_.input.shape[1]),
                  .parameters = {},
                  .input = input_,
                  .residual = residual_};
    if (request_.weights != nullptr) {
      for (const Tensor& tensor : static_cast<FakeWeights*>(request_.weights)->values) {
        pass.parameters.push_back(values_at(tensor.data, static_cast<std::size_t>(tensor.elements())));
      }
    }
    return pass;
  }

  FakeLog& log_;
  LayerSpec spec_;
  LayerRequest request_;
  FakeTraits traits_;
  ActivationSpec output_;
  BatchPosition place_{};
  Values input_, residual_, result_;  // copies of the last forward's
};

class FakeLoss final : public LossLayer {
 public:
  FakeLoss(FakeLog& log, const Shape& logits, double smoothing) : log_(log), logits_(logits), smoothing_(smoothing) {}
  void run(Stream&, const LossPass& pass) override {
    log_.enqueue([this, pass] { do_run(pass); });
  }

 private:
  void do_run(const LossPass& pass) {
    const auto logits = floats(pass.logits, static_cast<std::size_t>(logits_.elements()));
    if (pass.logits_gradient != nullptr) {
      std::ranges::fill(floats(pass.logits_gradient, logits.size()), std::numeric_limits<float>::quiet_NaN());
    }
    log_.logits.assign(logits.begin(), logits.end());
    log_.smoothing = smoothing_;
    if (pass.logits_gradient == nullptr) return;
    Values gradient;
    for (std::size_t i = 0; i < logits.size(); ++i) {
      const std::int32_t label = host_i32(pass.labels)[i / static_cast<std::size_t>(logits_[1])];
      gradient.push_back(fake_loss_gradient(logits[i], label, *pass.gradient_scale));
    }
    write(pass.logits_gradient, gradient);
  }

  FakeLog& log_;
  Shape logits_;
  double smoothing_;
};

class FakeBackend final : public Backend {
 public:
  FakeLog log;
  bool captures = false;
  int max_graphs = 100;  // further captures fail
  int graphs = 0;        // captured

  std::unique_ptr<Graph> capture(Stream&, const std::function<void()>& enqueue) override {
    struct FakeGraph : Graph {
      void launch(Stream&) override {
        for (const auto& operation : *operations) operation();
      }
      std::shared_ptr<FakeLog::Operations> operations = std::make_shared<FakeLog::Operations>();
    };
    if (!captures || graphs == max_graphs) return nullptr;
    ++graphs;
    auto graph = std::make_unique<FakeGraph>();
    log.captured = graph->operations;
    enqueue();
    log.captured = nullptr;
    return graph;
  }

  std::string description() const override { return "fake"; }
  MemorySpace memory_space() const override { return MemorySpace::host; }
  void enter_compute_thread(int) override {}
  Buffer allocate(std::size_t bytes) override {
    return {std::calloc(1, bytes), bytes, MemorySpace::host, [](void* data) { std::free(data); }};
  }
  std::unique_ptr<Stream> make_stream() override {
    struct Immediate : Stream {
      void synchronize() override {}
    };
    return std::make_unique<Immediate>();
  }
  void copy(Stream&, const Tensor& to, const Tensor& from) override { std::memcpy(to.data, from.data, to.bytes()); }
  void fill_zero(Stream&, const Tensor& tensor) override {
    log.enqueue([=] { std::memset(tensor.data, 0, tensor.bytes()); });
  }
  void add(Stream&, const Tensor& to, const Tensor& from) override {
    const auto addends = host_f32(from);
    std::ranges::transform(host_f32(to), addends, host_f32(to).begin(), std::plus<>());
  }
  void blend(Stream&, const Tensor&, const Tensor&, float) override { refuse(); }
  void convert(Stream&, const Tensor&, const Tensor&) override { refuse(); }
  void find_not_finite(Stream&, const NotFiniteSearch&) override { refuse(); }
  void sgd_step(Stream&, const SgdStep&) override { refuse(); }
  void adamw_step(Stream&, const AdamWStep&) override { refuse(); }
  void sum_squares(Stream&, std::span<const Tensor>, const Tensor&) override { refuse(); }
  void sum_runs(Stream&, const Tensor&, const Tensor&, const Tensor&) override { refuse(); }
  void to_fixed_point(Stream&, const FixedPointGrid&, const ToFixedPoint&) override { refuse(); }
  void from_fixed_point(Stream&, const FixedPointGrid&, const FromFixedPoint&) override { refuse(); }
  void clip_factor(Stream&, const Tensor&, double, const Tensor&) override { refuse(); }
  void trust_factors(Stream&, const TrustFactors&) override { refuse(); }
  void add_digests(Stream&, std::span<const DigestedTensor> tensors, const Tensor& digests) override {
    std::int64_t* digest = host_i64(digests).data();
    for (const auto& [values, start] : tensors) {
      std::uint64_t at = start;
      auto sum = static_cast<std::uint64_t>(*digest);
      for (const float value : host_f32(values)) {
        sum += mix64(std::bit_cast<std::uint32_t>(value) + (at += kDigestStride));
      }
      *digest++ = static_cast<std::int64_t>(sum);
    }
  }
  ActivationSpec plain_activation(const Shape& shape) override {
    return {shape, nullptr, static_cast<std::size_t>(shape.elements()) * sizeof(float)};
  }
  void to_plain(Stream&, const ActivationSpec&, const void*, const Tensor&) override { refuse(); }
  std::unique_ptr<LayerWeights> make_weights(const LayerSpec&, std::span<const Tensor> values) override {
    return std::make_unique<FakeWeights>(log, values);
  }
  std::unique_ptr<Layer> make_layer(const LayerSpec& spec, const LayerRequest& request) override {
    return std::make_unique<FakeLayer>(log, spec, request);
  }
  std::unique_ptr<LossLayer> make_softmax_loss(const ActivationSpec& logits, const LossOptions& options) override {
    return std::make_unique<FakeLoss>(log, logits.shape, options.smoothing);
  }

 private:
  static void refuse() { FAIL() << "a pass over a network needs no such operation"; }
};

}  // namespace tutti::testing_support
