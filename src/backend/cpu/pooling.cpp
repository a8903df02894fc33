#include "tutti/base/error.hpp"

#include "backend/cpu/layer_loops.hpp"
#include "backend/cpu/layers.hpp"
#include "backend/cpu/stream.hpp"
#include "backend/planned_layer.hpp"
#include "backend/requests.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <vector>

namespace tutti::cpu {
namespace {

template <class Spec>
ActivationSpec output_of(const Spec& spec, const LayerRequest& request) {
  const Layout& input = layout_of(request.input);
  return activation_of({batch_output(spec, request.input.shape), input.type(), input.order()});
}

template <class T>
class Pool2dLayer final : public PlannedLayer {
 public:
  Pool2dLayer(const Pool2dSpec& spec, const LayerRequest& request)
      : PlannedLayer(request, output_of(spec, request), backward_reads(spec)),
        spec_(spec),
        layout_(layout_of(request.input)),
        input_(request.input.shape),
        loops_(layer_loops<T>()) {
    const bool keeps_choice = mode_ == LayerMode::training && spec.pooling == Pooling::max;
    constexpr int kWidest = 256;  // the place in a window has 16 bits
    if (keeps_choice && spec.kernel > kWidest) {
      throw Error(
          ErrorSource::input,
          fmt::format("max-pool2d: on CPUs, its kernel can be trained up to {}, not with {}", kWidest, spec.kernel));
    }
    if (keeps_choice) chosen_.resize(static_cast<std::size_t>(ChannelLayout(layout_of(output_)).elements()));
  }

  void forward(Stream& stream, const LayerForward& pass) override {
    const auto pool = spec_.pooling == Pooling::max ? loops_.max_pool : loops_.average_pool;
    const T* const input = static_cast<const T*>(pass.input);
    T* const output = static_cast<T*>(pass.output);
    for_each_block(stream, [&](std::int64_t block) {
      PoolPass<T> of_block = block_pass(block);
      of_block.values = input + block * input_pixels() * layout_.period();
      of_block.results = output + block * output_pixels() * layout_.period();
      pool(of_block);
    });
  }

  void backward(Stream& stream, const LayerBackward& pass) override {
    require_training(pass);
    if (pass.input_gradient == nullptr) return;
    sum_output_gradients(pass, layout_of(output_));
    const T* const gradient = static_cast<const T*>(pass.output_gradients[0]);
    T* const input_gradient = static_cast<T*>(pass.input_gradient);
    for_each_block(stream, [&](std::int64_t block) {
      PoolPass<T> of_block = block_pass(block);
      of_block.values = gradient + block * output_pixels() * layout_.period();
      of_block.results = input_gradient + block * input_pixels() * layout_.period();
      loops_.pool_gradient(of_block);
    });
  }

 private:
  std::int64_t input_pixels() const { return input_[2] * input_[3]; }
  std::int64_t output_pixels() const { return output_.shape[2] * output_.shape[3]; }

  PoolPass<T> block_pass(std::int64_t block) {
    const std::int64_t chosen = block * output_pixels() * layout_.period();
    return {.rows = input_[2],
            .columns = input_[3],
            .period = layout_.period(),
            .output_rows = output_.shape[2],
            .output_columns = output_.shape[3],
            .kernel = spec_.kernel,
            .stride = spec_.stride,
            .padding = spec_.padding,
            .values = nullptr,
            .results = nullptr,
            .chosen = chosen_.empty() ? nullptr : chosen_.data() + chosen};
  }

  // Calls visit(block) for every block of channels of every sample.
  template <class Visit>
  void for_each_block(Stream& stream, Visit visit) const {
    constexpr std::int64_t kElementsWorthSharing = std::int64_t{1} << 16;
    const std::int64_t blocks = layout_.blocks();
    const auto visit_sample = [&](int sample) {
      for (std::int64_t block = 0; block < blocks; ++block) visit(sample * blocks + block);
    };
    const auto samples = static_cast<int>(layout_.samples());
    if (layout_.elements() >= kElementsWorthSharing) return cpu_stream(stream).run(samples, visit_sample);
    for (int sample = 0; sample < samples; ++sample) visit_sample(sample);
  }

  Pool2dSpec spec_;
  ChannelLayout layout_;  // of the input; the output's is the same for its extents
  Shape input_;
  const LayerLoops<T>& loops_;
  std::vector<std::uint16_t> chosen_;
};

template <class T>
class GlobalAveragePoolLayer final : public PlannedLayer {
 public:
  GlobalAveragePoolLayer(const GlobalAveragePoolSpec& spec, const LayerRequest& request)
      : PlannedLayer(request, output_of(spec, request), backward_reads(spec)),
        layout_(layout_of(request.input)),
        sums_(static_cast<std::size_t>(layout_.period())) {}

  void forward(Stream&, const LayerForward& pass) override {
    const T* input = static_cast<const T*>(pass.input);
    T* output = static_cast<T*>(pass.output);
    for (std::int64_t block = 0; block < layout_.samples() * layout_.blocks(); ++block) {
      std::ranges::fill(sums_, 0.0);
      for (std::int64_t pixel = 0; pixel < layout_.pixels(); ++pixel) {
        for (double& sum : sums_) sum += to_float(*input++);
      }
      for (const double sum : sums_) set(*output++, static_cast<float>(sum / static_cast<double>(layout_.pixels())));
    }
  }

  void backward(Stream&, const LayerBackward& pass) override {
    require_training(pass);
    if (pass.input_gradient == nullptr) return;
    sum_output_gradients(pass, layout_of(output_));
    const T* gradient = static_cast<const T*>(pass.output_gradients[0]);
    T* input_gradient = static_cast<T*>(pass.input_gradient);
    const auto pixels = static_cast<float>(layout_.pixels());
    for (std::int64_t block = 0; block < layout_.samples() * layout_.blocks(); ++block) {
      for (std::int64_t pixel = 0; pixel < layout_.pixels(); ++pixel) {
        for (std::int64_t c = 0; c < layout_.period(); ++c) set(*input_gradient++, to_float(gradient[c]) / pixels);
      }
      gradient += layout_.period();
    }
  }

 private:
  ChannelLayout layout_;
  std::vector<double> sums_;
};

}  // namespace

std::unique_ptr<Layer> make(ElementType, const Pool2dSpec& spec, const LayerRequest& request) {
  return make_typed<Pool2dLayer>(request, spec, request);
}

std::unique_ptr<Layer> make(ElementType, const GlobalAveragePoolSpec& spec, const LayerRequest& request) {
  return make_typed<GlobalAveragePoolLayer>(request, spec, request);
}

}  // namespace tutti::cpu
