#include "backend/cuda/format.hpp"
#include "backend/cuda/global_average_pool_kernels.hpp"
#include "backend/cuda/gradient_sum.hpp"
#include "backend/cuda/layers.hpp"
#include "backend/cuda/native.hpp"
#include "backend/requirements.hpp"

namespace tutti::cuda {
namespace {

class GlobalAveragePoolLayer final : public Layer {
 public:
  GlobalAveragePoolLayer(const GlobalAveragePoolSpec& spec, const LayerRequest& request)
      : mode_(request.mode),
        wants_input_gradient_(request.wants_input_gradient),
        type_(format_of(request.input).type()),
        layout_(layout_of(request.input)),
        output_(activation_of(output_shape(spec, request.input.shape.without_first()).batch_of(request.input.shape[0]),
                              type_)) {}

  const ActivationSpec& output() const override { return output_; }
  bool reads_input() const override { return false; }
  bool reads_output() const override { return false; }

  void forward(Stream& stream, const LayerForward& pass) override {
    launch_global_average(native(as_cuda_stream(stream)), {type_, layout_, pass.input, pass.output});
  }

  void backward(Stream& stream, const LayerBackward& pass) override {
    require_training(mode_, pass);
    if (!wants_input_gradient_) return;
    CudaStream& ours = as_cuda_stream(stream);
    launch_global_average_gradient(native(ours),
                                   {type_, layout_, gradients_of(ours, pass, output_), pass.input_gradient});
  }

 private:
  LayerMode mode_;
  bool wants_input_gradient_;
  ElementType type_;
  ImageLayout layout_;
  ActivationSpec output_;
};

}  // namespace

std::unique_ptr<Layer> make(const Processor&, const GlobalAveragePoolSpec& spec, const LayerRequest& request) {
  return std::make_unique<GlobalAveragePoolLayer>(spec, request);
}

}  // namespace tutti::cuda
