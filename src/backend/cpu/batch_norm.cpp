#include "backend/cpu/channel_kernels.hpp"
#include "backend/cpu/check.hpp"
#include "backend/cpu/gradient_sum.hpp"
#include "backend/cpu/layers.hpp"
#include "backend/cpu/residual.hpp"
#include "backend/cpu/weights.hpp"

#include <cmath>

namespace tutti::cpu {
namespace {

// The canonical parameters. Borrowed.
struct Parameters {
  const float* scale;
  const float* shift;
  const float* mean;
  const float* variance;
};

Parameters parameters_of(CpuWeights& weights, std::int64_t channels) {
  const auto values = [&](std::size_t index) {
    return static_cast<const float*>(weights.prepared(index, plain({channels})).get_data_handle());
  };
  return {values(0), values(1), values(2), values(3)};
}

// A factor or an addend for each channel, each block's repeated as the kernels want it. Channels that only pad a block
// keep zeros, so that padding comes out as zeros.
class PerChannel {
 public:
  explicit PerChannel(const ChannelLayout& layout)
      : period_(layout.period()),
        length_(repeated_length(period_)),
        values_(static_cast<std::size_t>(layout.blocks() * length_)) {}

  const float* of(std::int64_t block) const { return values_.data() + block * length_; }
  void set(std::int64_t block, std::int64_t channel, float value) {
    float* const repeated = values_.data() + block * length_;
    for (std::int64_t i = channel; i < length_; i += period_) repeated[i] = value;
  }

 private:
  std::int64_t period_;
  std::int64_t length_;
  std::vector<float> values_;
};

// Two sums for each channel of a block.
class Sums {
 public:
  explicit Sums(std::int64_t period)
      : period_(period),
        first(static_cast<std::size_t>(lanes_of(period))),
        second(static_cast<std::size_t>(lanes_of(period))) {}

  void clear() {
    std::ranges::fill(first, 0.0);
    std::ranges::fill(second, 0.0);
  }
  // Brings the lanes of each channel together, into the first of them.
  void fold() {
    for (std::size_t lane = static_cast<std::size_t>(period_); lane < first.size(); ++lane) {
      first[lane % static_cast<std::size_t>(period_)] += first[lane];
      second[lane % static_cast<std::size_t>(period_)] += second[lane];
    }
  }

 private:
  std::int64_t period_;

 public:
  std::vector<double> first;
  std::vector<double> second;
};

struct Statistics {
  double mean = 0;
  double variance = 0;
};

template <class T>
class BatchNormLayer final : public Layer {
 public:
  BatchNormLayer(const dnnl::engine& engine, const BatchNormSpec& spec, const LayerRequest& request)
      : spec_(spec),
        mode_(request.mode),
        wants_input_gradient_(request.wants_input_gradient),
        output_(request.input),
        layout_(desc_of(request.input)),
        parameters_(parameters_of(weights_of(spec, request), layout_.channels())),
        statistics_(static_cast<std::size_t>(layout_.channels())),
        sums_(layout_.period()),
        mean_(layout_),
        factor_(layout_),
        slope_(layout_),
        offset_(layout_) {
    if (spec.add) residual_.emplace(engine, desc_of(request.residual), desc_of(request.input));
  }

  const ActivationSpec& output() const override { return output_; }
  bool reads_output() const override { return spec_.relu; }
  bool leaves_residual_gradient() const override { return residual_ && residual_->is_stored_as_wanted(); }

  void forward(Stream& stream, const LayerForward& pass) override;
  void backward(Stream& stream, const LayerBackward& pass) override;

 private:
  double values_per_channel() const { return static_cast<double>(layout_.samples() * layout_.pixels()); }
  void measure(std::int64_t block, const T* input);
  void prepare_forward(std::int64_t block);
  void prepare_backward(std::int64_t block, const LayerBackward& pass);

  BatchNormSpec spec_;
  LayerMode mode_;
  bool wants_input_gradient_;
  ActivationSpec output_;
  ChannelLayout layout_;
  Parameters parameters_;
  std::optional<Residual> residual_;
  std::vector<Statistics> statistics_;  // of the last batch
  Sums sums_;
  PerChannel mean_;
  PerChannel factor_;
  PerChannel slope_;
  PerChannel offset_;
};

template <class T>
void BatchNormLayer<T>::measure(std::int64_t block, const T* input) {
  sums_.clear();
  for (std::int64_t i = 0; i < layout_.stretches(); ++i) {
    channel_kernels<T>().moments({layout_.stretch(block, i), input, sums_.first.data(), sums_.second.data()});
  }
  sums_.fold();
  for (std::int64_t c = 0; c < layout_.channels_of(block); ++c) {
    const auto lane = static_cast<std::size_t>(c);
    const double mean = sums_.first[lane] / values_per_channel();
    const double variance = std::max(0.0, sums_.second[lane] / values_per_channel() - mean * mean);
    statistics_[static_cast<std::size_t>(block * layout_.period() + c)] = {mean, variance};
  }
}

// The kernels subtract a mean in single precision; what that leaves of the true one goes into the offset.
template <class T>
void BatchNormLayer<T>::prepare_forward(std::int64_t block) {
  for (std::int64_t c = 0; c < layout_.channels_of(block); ++c) {
    const std::int64_t channel = block * layout_.period() + c;
    const Statistics& statistics = statistics_[static_cast<std::size_t>(channel)];
    const double factor = parameters_.scale[channel] / std::sqrt(statistics.variance + BatchNormSpec::kEpsilon);
    const auto mean = static_cast<float>(statistics.mean);
    mean_.set(block, c, mean);
    factor_.set(block, c, static_cast<float>(factor));
    offset_.set(block, c, static_cast<float>(parameters_.shift[channel] + (mean - statistics.mean) * factor));
  }
}

template <class T>
void BatchNormLayer<T>::forward(Stream& stream, const LayerForward& pass) {
  const T* const input = static_cast<const T*>(pass.input);
  const void* residual = residual_ ? residual_->load(cpu_stream(stream), pass.residual) : nullptr;
  if (mode_ == LayerMode::evaluation) {
    for (std::size_t c = 0; c < statistics_.size(); ++c)
      statistics_[c] = {parameters_.mean[c], parameters_.variance[c]};
  }
  for (std::int64_t block = 0; block < layout_.blocks(); ++block) {
    if (mode_ == LayerMode::training) measure(block, input);
    prepare_forward(block);
    // Backwards, since the end of what was measured is still in the caches.
    for (std::int64_t i = layout_.stretches(); i-- > 0;) {
      channel_kernels<T>().normalize({layout_.stretch(block, i), input, static_cast<const T*>(residual),
                                      static_cast<T*>(pass.output), mean_.of(block), factor_.of(block),
                                      offset_.of(block), spec_.relu});
    }
  }
}

// dx = factor * (dy - mean of dy - (x - mean) / (variance + epsilon) * mean of dy * (x - mean)).
template <class T>
void BatchNormLayer<T>::prepare_backward(std::int64_t block, const LayerBackward& pass) {
  const auto gradient = [&](std::size_t index) { return static_cast<float*>(pass.gradients[index].data); };
  const double n = values_per_channel();
  const double unbiased = n / std::max(n - 1, 1.0);
  for (std::int64_t c = 0; c < layout_.channels_of(block); ++c) {
    const std::int64_t channel = block * layout_.period() + c;
    const Statistics& statistics = statistics_[static_cast<std::size_t>(channel)];
    const double inverse = 1 / std::sqrt(statistics.variance + BatchNormSpec::kEpsilon);
    const double factor = parameters_.scale[channel] * inverse;
    // The kernels' mean is rounded.
    const double beside = statistics.mean - static_cast<float>(statistics.mean);
    const double sum = sums_.first[static_cast<std::size_t>(c)];
    const double product = sums_.second[static_cast<std::size_t>(c)] - beside * sum;
    const double slope = factor * inverse * inverse * product / n;
    slope_.set(block, c, static_cast<float>(slope));
    offset_.set(block, c, static_cast<float>(factor * sum / n - slope * beside));
    gradient(0)[channel] = static_cast<float>(product * inverse);
    gradient(1)[channel] = static_cast<float>(sum);
    gradient(2)[channel] = static_cast<float>(statistics.mean * pass.sample_share);
    gradient(3)[channel] = static_cast<float>(statistics.variance * unbiased * pass.sample_share);
  }
}

template <class T>
void BatchNormLayer<T>::backward(Stream& stream, const LayerBackward& pass) {
  require_training(mode_, pass);
  const std::vector<T*> gradients = gradients_of<T>(pass);
  const T* const input = static_cast<const T*>(pass.input);
  const T* const output = spec_.relu ? static_cast<const T*>(pass.output) : nullptr;
  for (std::int64_t block = 0; block < layout_.blocks(); ++block) {
    sums_.clear();
    for (std::int64_t i = 0; i < layout_.stretches(); ++i) {
      channel_kernels<T>().collect({layout_.stretch(block, i), gradients, output, input, mean_.of(block),
                                    sums_.first.data(), sums_.second.data()});
    }
    sums_.fold();
    prepare_backward(block, pass);
    if (!wants_input_gradient_) continue;
    for (std::int64_t i = layout_.stretches(); i-- > 0;) {
      channel_kernels<T>().propagate({layout_.stretch(block, i), gradients[0], input,
                                      static_cast<T*>(pass.input_gradient), mean_.of(block), factor_.of(block),
                                      slope_.of(block), offset_.of(block)});
    }
  }
  if (residual_) residual_->deliver_gradient(cpu_stream(stream), gradients[0], pass.residual_gradient);
}

}  // namespace

std::unique_ptr<Layer> make(const Processor& processor, const BatchNormSpec& spec, const LayerRequest& request) {
  static_cast<void>(output_shape(spec, request.input.shape.without_first()));
  if (spec.add) require_residual(spec, request);
  return check([&] { return fmt::format("making batch-norm on {}", request.input.shape.text()); },
               [&]() -> std::unique_ptr<Layer> {
                 if (is_bf16(desc_of(request.input))) {
                   return std::make_unique<BatchNormLayer<Bf16>>(processor.engine, spec, request);
                 }
                 return std::make_unique<BatchNormLayer<float>>(processor.engine, spec, request);
               });
}

}  // namespace tutti::cpu
