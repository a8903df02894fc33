#include "backend/cuda/converting_layer.hpp"

#include "backend/cuda/convert.hpp"
#include "backend/cuda/format.hpp"

#include <utility>

namespace tutti::cuda {
namespace {

// One activation that a layer is handed, and its gradient: passed on as they are unless they are plain.
class Converted {
 public:
  Converted(const Processor& processor, const ActivationSpec& given, bool wants_gradient)
      : within_(given), is_plain_(given.format && cuda::is_plain(given)) {
    if (!is_plain_) return;
    within_ = activation_of(given.shape, processor.type);
    values_ = allocate_cuda(processor.device, within_.bytes);
    if (wants_gradient) gradient_ = allocate_cuda(processor.device, within_.bytes);
  }

  const ActivationSpec& within() const { return within_; }
  bool is_plain() const { return is_plain_; }

  const void* take(CudaStream& stream, const void* given) const {
    if (!is_plain_) return given;
    from_plain(stream, within_, static_cast<const float*>(given), values_.data());
    return values_.data();
  }
  // As taken last.
  const void* taken(const void* given) const { return is_plain_ ? values_.data() : given; }
  void* gradient(void* given) const { return is_plain_ && given != nullptr ? gradient_.data() : given; }
  void give_back(CudaStream& stream, void* given) const {
    if (is_plain_ && given != nullptr) to_plain(stream, within_, gradient_.data(), static_cast<float*>(given));
  }

 private:
  ActivationSpec within_;
  bool is_plain_;
  Buffer values_;
  Buffer gradient_;
};

class ConvertingLayer final : public Layer {
 public:
  using Make = std::function<std::unique_ptr<Layer>(const LayerRequest&)>;

  ConvertingLayer(const Processor& processor, const LayerRequest& request, const Make& make)
      : wants_input_gradient_(request.wants_input_gradient),
        input_(processor, request.input, request.wants_input_gradient),
        residual_(processor, request.residual, request.mode == LayerMode::training) {
    LayerRequest within = request;
    within.input = input_.within();
    within.residual = residual_.within();
    layer_ = make(within);
  }

  const ActivationSpec& output() const override { return layer_->output(); }
  bool reads_input() const override { return layer_->reads_input() && !input_.is_plain(); }
  bool reads_output() const override { return layer_->reads_output(); }
  bool leaves_residual_gradient() const override { return layer_->leaves_residual_gradient() && !residual_.is_plain(); }
  void set_place(Stream& stream, const SamplePlace& place) override { layer_->set_place(stream, place); }

  void forward(Stream& stream, const LayerForward& pass) override {
    CudaStream& cuda = as_cuda_stream(stream);
    LayerForward within = pass;
    within.input = input_.take(cuda, pass.input);
    within.residual = residual_.take(cuda, pass.residual);
    layer_->forward(stream, within);
  }

  void backward(Stream& stream, const LayerBackward& pass) override {
    CudaStream& cuda = as_cuda_stream(stream);
    const bool stays = residual_.is_plain() && layer_->leaves_residual_gradient();
    void* const wanted_input = wants_input_gradient_ ? pass.input_gradient : nullptr;
    LayerBackward within = pass;
    within.input = input_.taken(pass.input);
    within.input_gradient = input_.gradient(wanted_input);
    if (pass.residual_gradient != nullptr) {
      within.residual_gradient = stays ? pass.output_gradients[0] : residual_.gradient(pass.residual_gradient);
    }
    layer_->backward(stream, within);
    input_.give_back(cuda, wanted_input);
    if (stays && pass.residual_gradient != nullptr) {
      to_plain(cuda, residual_.within(), pass.output_gradients[0], static_cast<float*>(pass.residual_gradient));
    } else {
      residual_.give_back(cuda, pass.residual_gradient);
    }
  }

 private:
  bool wants_input_gradient_;
  Converted input_;
  Converted residual_;
  std::unique_ptr<Layer> layer_;
};

}  // namespace

std::unique_ptr<Layer> make_converting_layer(const Processor& processor, const LayerRequest& request,
                                             const std::function<std::unique_ptr<Layer>(const LayerRequest&)>& make) {
  return std::make_unique<ConvertingLayer>(processor, request, make);
}

}  // namespace tutti::cuda
