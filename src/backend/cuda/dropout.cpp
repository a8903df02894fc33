#include "backend/cuda/check.hpp"
#include "backend/cuda/dropout_kernels.hpp"
#include "backend/cuda/gradient_sum.hpp"
#include "backend/cuda/layers.hpp"
#include "backend/cuda/native.hpp"
#include "backend/requirements.hpp"

#include <cmath>

namespace tutti::cuda {
namespace {

class DropoutLayer final : public Layer {
 public:
  DropoutLayer(const Processor& processor, const DropoutSpec& spec, const LayerRequest& request)
      : mode_(request.mode), wants_input_gradient_(request.wants_input_gradient), output_(request.input) {
    if (mode_ == LayerMode::evaluation) return;
    place_ = allocate_cuda(processor.device, sizeof(SamplePlace));
    kept_ = allocate_cuda(processor.device, output_.bytes / kPackBytes);
    work_ = {.type = format_of(request.input).type(),
             .layout = layout_of(request.input),
             .place = static_cast<const SamplePlace*>(place_.data()),
             .purpose = request.random_purpose,
             .drop_below = static_cast<std::uint64_t>(std::llrint(spec.rate * 0x1p32)),
             .factor = static_cast<float>(1 / (1 - spec.rate)),
             .kept = static_cast<std::uint8_t*>(kept_.data())};
  }

  const ActivationSpec& output() const override { return output_; }
  bool reads_input() const override { return false; }
  bool reads_output() const override { return false; }

  void set_place(Stream& stream, const SamplePlace& place) override {
    if (mode_ == LayerMode::evaluation) return;
    launch_place(native(as_cuda_stream(stream)), place, static_cast<SamplePlace*>(place_.data()));
  }

  void forward(Stream& stream, const LayerForward& pass) override {
    const cudaStream_t cuda = native(as_cuda_stream(stream));
    if (mode_ == LayerMode::evaluation) {
      check(cudaMemcpyAsync(pass.output, pass.input, output_.bytes, cudaMemcpyDeviceToDevice, cuda));
      return;
    }
    work_.input = pass.input;
    work_.output = pass.output;
    launch_dropout(cuda, work_);
  }

  void backward(Stream& stream, const LayerBackward& pass) override {
    require_training(mode_, pass);
    if (!wants_input_gradient_) return;
    CudaStream& ours = as_cuda_stream(stream);
    launch_dropout_gradient(native(ours), {.type = work_.type,
                                           .layout = work_.layout,
                                           .gradients = gradients_of(ours, pass, output_),
                                           .kept = work_.kept,
                                           .factor = work_.factor,
                                           .input_gradient = pass.input_gradient});
  }

 private:
  LayerMode mode_;
  bool wants_input_gradient_;
  ActivationSpec output_;
  Dropout work_;
  Buffer place_;
  Buffer kept_;  // of the last output
};

}  // namespace

std::unique_ptr<Layer> make(const Processor& processor, const DropoutSpec& spec, const LayerRequest& request) {
  static_cast<void>(output_shape(spec, request.input.shape.without_first()));
  return std::make_unique<DropoutLayer>(processor, spec, request);
}

}  // namespace tutti::cuda
