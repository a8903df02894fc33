#include "tutti/backend/layer_spec.hpp"

#include "backend/cuda/format.hpp"
#include "backend/cuda/gradient_sum.hpp"
#include "backend/cuda/layers.hpp"
#include "backend/cuda/native.hpp"
#include "backend/cuda/pool2d_kernels.hpp"
#include "backend/requirements.hpp"

namespace tutti::cuda {
namespace {

PoolExtents extents_of(const Pool2dSpec& spec, const ActivationSpec& input, const ActivationSpec& output) {
  const ImageLayout from = layout_of(input);
  const ImageLayout to = layout_of(output);
  return {.samples = from.samples,
          .packs = static_cast<int>(packs_of(from, format_of(input).type())),
          .height = static_cast<int>(from.height),
          .width = static_cast<int>(from.width),
          .output_height = static_cast<int>(to.height),
          .output_width = static_cast<int>(to.width),
          .kernel = static_cast<int>(spec.kernel),
          .stride = static_cast<int>(spec.stride),
          .padding = static_cast<int>(spec.padding)};
}

class Pool2dLayer final : public Layer {
 public:
  Pool2dLayer(const Processor& processor, const Pool2dSpec& spec, const LayerRequest& request)
      : pooling_(spec.pooling),
        mode_(request.mode),
        wants_input_gradient_(request.wants_input_gradient),
        type_(format_of(request.input).type()),
        output_(activation_of(output_shape(spec, request.input.shape.without_first()).batch_of(request.input.shape[0]),
                              type_)),
        extents_(extents_of(spec, request.input, output_)) {
    if (pooling_ != Pooling::max || mode_ != LayerMode::training || !wants_input_gradient_) return;
    const std::size_t bytes_each = extents_.is_narrow() ? sizeof(std::uint8_t) : sizeof(std::uint32_t);
    places_ = allocate_cuda(processor.device, output_.bytes / bytes_of(type_) * bytes_each);
  }

  const ActivationSpec& output() const override { return output_; }
  bool reads_input() const override { return false; }
  bool reads_output() const override { return false; }

  void forward(Stream& stream, const LayerForward& pass) override {
    const cudaStream_t cuda = native(as_cuda_stream(stream));
    const Pool work{type_, extents_, pass.input, pass.output, places_.data()};
    pooling_ == Pooling::max ? launch_max_pool(cuda, work) : launch_average_pool(cuda, work);
  }

  void backward(Stream& stream, const LayerBackward& pass) override {
    require_training(mode_, pass);
    if (!wants_input_gradient_) return;
    CudaStream& ours = as_cuda_stream(stream);
    const PoolGradient work{type_, extents_, gradients_of(ours, pass, output_), places_.data(), pass.input_gradient};
    pooling_ == Pooling::max ? launch_max_pool_gradient(native(ours), work)
                             : launch_average_pool_gradient(native(ours), work);
  }

 private:
  Pooling pooling_;
  LayerMode mode_;
  bool wants_input_gradient_;
  ElementType type_;
  ActivationSpec output_;
  PoolExtents extents_;
  Buffer places_;  // of the greatest of the last input; empty where they are not needed
};

}  // namespace

std::unique_ptr<Layer> make(const Processor& processor, const Pool2dSpec& spec, const LayerRequest& request) {
  return std::make_unique<Pool2dLayer>(processor, spec, request);
}

}  // namespace tutti::cuda
