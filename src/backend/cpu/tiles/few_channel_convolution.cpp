#include "tutti/base/error.hpp"

#include "backend/cpu/tiles/lane_kernels.hpp"
#include "backend/cpu/tiles/tile_work.hpp"
#include "backend/cpu/tiles/tiled_convolution.hpp"

namespace tutti::cpu {
namespace {

template <class T>
class FewChannelConvolution final : public TiledConvolution {
 public:
  explicit FewChannelConvolution(const TiledShape& shape)
      : layout_(shape.input),
        output_(shape.output, 2 * kernels_.lanes),
        rows_(shape.input.shape()[2]),
        columns_(shape.input.shape()[3]),
        padding_(shape.padding) {
    const std::int64_t channels = layout_.channels();
    const std::int64_t row = (columns_ + 2 * padding_) * channels;
    window_ = {shape.window, shape.window * channels, row, shape.stride * row, shape.stride * channels};
  }

  void forward(CpuStream& stream, const TiledForward& pass) const override;
  void backward_data(CpuStream&, const TiledBackwardData&) const override {
    throw Error(ErrorSource::internal, "the few-channel convolution has no input gradient");
  }
  void backward_weights(CpuStream& stream, const TiledBackwardWeights& pass) const override;

 private:
  std::int64_t values() const { return window_.rows * window_.run; }
  std::int64_t padded_input() const { return (rows_ + 2 * padding_) * window_.row; }
  // The index of a value under the window in the canonical order of weights.
  std::int64_t canonical(std::int64_t value) const {
    const std::int64_t channels = layout_.channels();
    const std::int64_t tap = value / window_.run * window_.rows + value % window_.run / channels;
    return value % channels * window_.rows * window_.rows + tap;
  }
  void load(const T* input, std::int64_t image, float* to) const;

  const FewChannelKernels<T>& kernels_ = lane_kernels<T>().few_channels;
  ChannelLayout layout_;
  LaneSide output_;
  std::int64_t rows_, columns_, padding_;
  FewChannelWindow window_;
};

template <class T>
void FewChannelConvolution<T>::load(const T* input, std::int64_t image, float* to) const {
  const std::int64_t channels = layout_.channels();
  std::fill_n(to, padded_input(), 0.0f);
  for (std::int64_t channel = 0; channel < channels; ++channel) {
    const T* const from = input + layout_.index_of(image, channel, 0);
    for (std::int64_t y = 0; y < rows_; ++y) {
      float* const row = to + (y + padding_) * window_.row + padding_ * channels + channel;
      for (std::int64_t x = 0; x < columns_; ++x)
        row[x * channels] = to_float(from[(y * columns_ + x) * layout_.period()]);
    }
  }
}

template <class T>
void FewChannelConvolution<T>::forward(CpuStream& stream, const TiledForward& pass) const {
  const std::int64_t panel = output_.panel;
  const std::int64_t lanes = output_.lanes();
  const std::int64_t kept = lanes * (values() + 1);
  float* const bias = stream.scratch(kept + stream.workers() * padded_input());
  float* const weights = bias + lanes;
  std::fill_n(bias, kept, 0.0f);
  if (pass.bias != nullptr) std::copy_n(pass.bias, output_.channels, bias);
  for (std::int64_t lane = 0; lane < output_.channels; ++lane) {
    float* const to = weights + lane / panel * values() * panel + lane % panel;
    for (std::int64_t i = 0; i < values(); ++i) to[i * panel] = pass.windows[lane * values() + canonical(i)];
  }
  parallel_for(stream, layout_.samples(), [&](int worker, std::int64_t image) {
    float* const input = bias + kept + worker * padded_input();
    load(static_cast<const T*>(pass.input), image, input);
    kernels_.forward(
        {window_, input, weights, bias, image_of(output_, static_cast<T*>(pass.output), image), pass.relu});
  });
}

template <class T>
void FewChannelConvolution<T>::backward_weights(CpuStream& stream, const TiledBackwardWeights& pass) const {
  const std::int64_t panel = output_.panel;
  const std::int64_t sums = output_.lanes() * (values() + 1);
  const auto work = [&](std::int64_t image, float* of_image, float* input) {
    load(static_cast<const T*>(pass.input), image, input);
    const T* const output = static_cast<const T*>(pass.output);
    kernels_.backward_weights({window_, input, image_of(output_, static_cast<const T*>(pass.output_gradient), image),
                               output == nullptr ? nullptr : image_of(output_, output, image).values, of_image});
  };
  const auto all = sum_images(stream, {layout_.samples(), sums, padded_input()}, work);
  for (std::int64_t lane = 0; lane < output_.channels; ++lane) {
    const float* const of_lane = all.data() + lane / panel * (values() + 1) * panel + lane % panel;
    for (std::int64_t i = 0; i < values(); ++i) {
      pass.window_gradients[lane * values() + canonical(i)] = of_lane[i * panel];
    }
    if (pass.bias_gradient != nullptr) pass.bias_gradient[lane] = of_lane[values() * panel];
  }
}

}  // namespace

bool is_few_channel(const TiledShape& shape) {
  constexpr std::int64_t kMaxValues = 32;  // under a window
  return shape.groups == 1 && shape.dilation == 1 && shape.input.shape()[1] * shape.window * shape.window <= kMaxValues;
}

template <class T>
std::shared_ptr<const TiledConvolution> make_few_channel(const TiledShape& shape) {
  if (!is_few_channel(shape)) return nullptr;
  return std::make_shared<const FewChannelConvolution<T>>(shape);
}
template std::shared_ptr<const TiledConvolution> make_few_channel<float>(const TiledShape&);
template std::shared_ptr<const TiledConvolution> make_few_channel<Bf16>(const TiledShape&);

}  // namespace tutti::cpu
