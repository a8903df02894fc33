#include "backend/cpu/channel_kernels.hpp"
#include "backend/cpu/layers.hpp"
#include "backend/cpu/library.hpp"

namespace tutti::cpu {
namespace {

template <class T>
class GlobalAveragePoolLayer final : public Layer {
 public:
  GlobalAveragePoolLayer(const LayerRequest& request, const Shape& output)
      : layout_(desc_of(request.input)),
        mode_(request.mode),
        wants_input_gradient_(request.wants_input_gradient),
        output_(activation_of(output, layout_.one_pixel())),
        sums_(static_cast<std::size_t>(layout_.period())) {}

  const ActivationSpec& output() const override { return output_; }
  bool reads_input() const override { return false; }
  bool reads_output() const override { return false; }

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
    require_training(mode_, pass);
    if (!wants_input_gradient_) return;
    sum_output_gradients(pass, desc_of(output_));
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
  LayerMode mode_;
  bool wants_input_gradient_;
  ActivationSpec output_;
  std::vector<double> sums_;
};

}  // namespace

std::unique_ptr<Layer> make(const Processor&, const GlobalAveragePoolSpec& spec, const LayerRequest& request) {
  const Shape& input = request.input.shape;
  const Shape output = output_shape(spec, input.without_first()).batch_of(input[0]);
  return check([&] { return fmt::format("making global-average-pool on {}", input.text()); },
               [&] { return make_typed<GlobalAveragePoolLayer>(request, request, output); });
}

}  // namespace tutti::cpu
