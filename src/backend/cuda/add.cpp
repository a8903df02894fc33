#include "backend/cuda/add_kernels.hpp"
#include "backend/cuda/gradient_sum.hpp"
#include "backend/cuda/layers.hpp"
#include "backend/cuda/native.hpp"
#include "backend/requirements.hpp"

namespace tutti::cuda {
namespace {

class AddLayer final : public Layer {
 public:
  AddLayer(const Processor& processor, const AddSpec& spec, const LayerRequest& request)
      : spec_(spec),
        mode_(request.mode),
        wants_input_gradient_(request.wants_input_gradient),
        output_(request.input),
        type_(format_of(request.input).type()),
        grid_(share_rows(layout_of(request.input), type_, kPassBlocks)) {
    if (spec.relu && mode_ == LayerMode::training) {
      positive_ = allocate_cuda(processor.device, output_.bytes / kPackBytes);
    }
  }

  const ActivationSpec& output() const override { return output_; }
  bool reads_input() const override { return false; }
  bool reads_output() const override { return false; }
  bool leaves_residual_gradient() const override { return true; }

  void forward(Stream& stream, const LayerForward& pass) override {
    launch_addition(native(as_cuda_stream(stream)), type_,
                    {.grid = grid_,
                     .input = pass.input,
                     .residual = pass.residual,
                     .output = pass.output,
                     .relu = spec_.relu,
                     .positive = positive()});
  }

  void backward(Stream& stream, const LayerBackward& pass) override {
    require_training(mode_, pass);
    CudaStream& ours = as_cuda_stream(stream);
    const GradientSum gradients = gradients_of(ours, pass, output_);
    const bool differs = gradients.second != nullptr || spec_.relu;
    void* const summed = differs && pass.residual_gradient != nullptr ? pass.output_gradients[0] : nullptr;
    void* const copy = wants_input_gradient_ ? pass.input_gradient : nullptr;
    if (summed == nullptr && copy == nullptr) return;
    launch_addition_gradient(native(ours), type_, {grid_, gradients, positive(), summed, copy});
  }

 private:
  std::uint8_t* positive() const { return static_cast<std::uint8_t*>(positive_.data()); }

  AddSpec spec_;
  LayerMode mode_;
  bool wants_input_gradient_;
  ActivationSpec output_;
  ElementType type_;
  RowGrid grid_;
  Buffer positive_;  // of the last output; empty without ReLU
};

}  // namespace

std::unique_ptr<Layer> make(const Processor& processor, const AddSpec& spec, const LayerRequest& request) {
  require_residual(spec, request);
  return std::make_unique<AddLayer>(processor, spec, request);
}

}  // namespace tutti::cuda
