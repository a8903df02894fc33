#include "backend/cuda/backend.hpp"
#include "backend/cuda/layers.hpp"
#include "backend/cuda/runtime.hpp"
#include "floats.cuh"

#include <utility>

namespace tutti::cuda {
namespace {

constexpr int kMaxThreads = 256;
constexpr std::int64_t kMaxBlocksY = 65535;

// A thread's pack within a sample. Adjacent threads have adjacent packs of a pixel, then adjacent pixels, so that both
// sides are coalesced where it matters: images with few channels, and vectors.
struct PackPlace {
  unsigned index;
  unsigned pixel;
  unsigned channel;  // the first
  unsigned pixels;
  unsigned packs;  // of a sample

  __device__ PackPlace(const ImageLayout& layout, unsigned size)
      : index(blockIdx.x * blockDim.x + threadIdx.x), pixels(static_cast<unsigned>(layout.height * layout.width)) {
    const unsigned packs_of_pixel = static_cast<unsigned>(layout.padded_channels) / size;
    pixel = index / packs_of_pixel;
    channel = (index - pixel * packs_of_pixel) * size;
    packs = pixels * packs_of_pixel;
  }
};

template <class T>
__global__ void gather_packs(const ImageLayout layout, const float* plain, Pack<T>* to) {
  const PackPlace place(layout, Pack<T>::kSize);
  if (place.index >= place.packs) return;
  for (std::int64_t n = blockIdx.y; n < layout.samples; n += gridDim.y) {
    const float* const from = plain + (n * layout.channels + place.channel) * place.pixels + place.pixel;
    Pack<T> pack;
    for (int i = 0; i < Pack<T>::kSize; ++i) {
      set(pack.values[i], place.channel + i < layout.channels ? from[std::int64_t{i} * place.pixels] : 0.0f);
    }
    to[n * place.packs + place.index] = pack;
  }
}

template <class T>
__global__ void scatter_packs(const ImageLayout layout, const Pack<T>* from, float* plain) {
  const PackPlace place(layout, Pack<T>::kSize);
  if (place.index >= place.packs) return;
  for (std::int64_t n = blockIdx.y; n < layout.samples; n += gridDim.y) {
    const Pack<T> pack = from[n * place.packs + place.index];
    float* const to = plain + (n * layout.channels + place.channel) * place.pixels + place.pixel;
    for (int i = 0; i < Pack<T>::kSize; ++i) {
      if (place.channel + i < layout.channels) to[std::int64_t{i} * place.pixels] = to_float(pack.values[i]);
    }
  }
}

template <class T>
Grid grid_of(const ImageLayout& layout) {
  const std::int64_t packs = layout.pixels() * (layout.padded_channels / Pack<T>::kSize);
  const std::int64_t threads = packs < kMaxThreads ? (packs + 31) / 32 * 32 : kMaxThreads;
  return {.blocks = threads == 0 ? 0 : (packs + threads - 1) / threads,
          .blocks_y = layout.samples < kMaxBlocksY ? layout.samples : kMaxBlocksY,
          .threads = static_cast<int>(threads)};
}

// `activation` has the native layout; `plain` is f32 in canonical order, in device memory. Asynchronous.
void convert_to_plain(CudaStream& stream, const ActivationSpec& activation, const void* from, float* plain) {
  const ImageLayout layout = layout_of(activation);
  const auto scatter = [&]<class T>(void (*kernel)(ImageLayout, const Pack<T>*, float*)) {
    launch(kernel, grid_of<T>(layout), native(stream), layout, static_cast<const Pack<T>*>(from), plain);
  };
  format_of(activation).type() == ElementType::bf16 ? scatter(scatter_packs<Bf16>) : scatter(scatter_packs<float>);
}

void convert_from_plain(CudaStream& stream, const ActivationSpec& activation, const float* plain, void* to) {
  const ImageLayout layout = layout_of(activation);
  const auto gather = [&]<class T>(void (*kernel)(ImageLayout, const float*, Pack<T>*)) {
    launch(kernel, grid_of<T>(layout), native(stream), layout, plain, static_cast<Pack<T>*>(to));
  };
  format_of(activation).type() == ElementType::bf16 ? gather(gather_packs<Bf16>) : gather(gather_packs<float>);
}

// An input of a layer, and its gradient. Both are converted if they are plain, else passed through.
class ConvertedActivation {
 public:
  ConvertedActivation(const Processor& processor, const ActivationSpec& given, bool wants_gradient)
      : native_spec_(given), is_plain_(given.format && cuda::is_plain(given)) {
    if (!is_plain_) return;
    native_spec_ = activation_of(given.shape, processor.type);
    values_ = allocate_cuda(processor.device, native_spec_.bytes);
    if (wants_gradient) gradient_ = allocate_cuda(processor.device, native_spec_.bytes);
  }

  const ActivationSpec& native_spec() const { return native_spec_; }
  bool is_plain() const { return is_plain_; }

  const void* load(CudaStream& stream, const void* given) const {
    if (!is_plain_) return given;
    convert_from_plain(stream, native_spec_, static_cast<const float*>(given), values_.data());
    return values_.data();
  }
  // The values of the last load().
  const void* loaded(const void* given) const { return is_plain_ ? values_.data() : given; }
  void* gradient(void* given) const { return is_plain_ && given != nullptr ? gradient_.data() : given; }
  void deliver_gradient(CudaStream& stream, void* given) const {
    if (is_plain_ && given != nullptr)
      convert_to_plain(stream, native_spec_, gradient_.data(), static_cast<float*>(given));
  }

 private:
  ActivationSpec native_spec_;
  bool is_plain_;
  Buffer values_;
  Buffer gradient_;
};

class ConvertingLayer final : public Layer {
 public:
  using Make = std::function<std::unique_ptr<Layer>(const LayerRequest&)>;

  ConvertingLayer(const Processor& processor, const LayerRequest& request, const Make& make)
      : input_(processor, request.input, request.wants_input_gradient),
        residual_(processor, request.residual, request.mode == LayerMode::training) {
    LayerRequest inner = request;
    inner.input = input_.native_spec();
    inner.residual = residual_.native_spec();
    layer_ = make(inner);
  }

  const ActivationSpec& output() const override { return layer_->output(); }
  bool reads_input() const override { return layer_->reads_input() && !input_.is_plain(); }
  bool reads_output() const override { return layer_->reads_output(); }
  bool residual_gradient_in_place() const override {
    return layer_->residual_gradient_in_place() && !residual_.is_plain();
  }
  void set_batch_position(Stream& stream, const BatchPosition& place) override {
    layer_->set_batch_position(stream, place);
  }

  void forward(Stream& stream, const LayerForward& pass) override {
    CudaStream& cuda = as_cuda_stream(stream);
    LayerForward inner = pass;
    inner.input = input_.load(cuda, pass.input);
    inner.residual = residual_.load(cuda, pass.residual);
    layer_->forward(stream, inner);
  }

  void backward(Stream& stream, const LayerBackward& pass) override {
    CudaStream& cuda = as_cuda_stream(stream);
    const bool stays = residual_.is_plain() && layer_->residual_gradient_in_place();
    LayerBackward inner = pass;
    inner.input = input_.loaded(pass.input);
    inner.input_gradient = input_.gradient(pass.input_gradient);
    if (pass.residual_gradient != nullptr) {
      inner.residual_gradient = stays ? pass.output_gradients[0] : residual_.gradient(pass.residual_gradient);
    }
    layer_->backward(stream, inner);
    input_.deliver_gradient(cuda, pass.input_gradient);
    if (stays && pass.residual_gradient != nullptr) {
      convert_to_plain(cuda, residual_.native_spec(), pass.output_gradients[0],
                       static_cast<float*>(pass.residual_gradient));
    } else {
      residual_.deliver_gradient(cuda, pass.residual_gradient);
    }
  }

 private:
  ConvertedActivation input_;
  ConvertedActivation residual_;
  std::unique_ptr<Layer> layer_;
};

}  // namespace

std::unique_ptr<Layer> make_converting_layer(const Processor& processor, const LayerRequest& request,
                                             const std::function<std::unique_ptr<Layer>(const LayerRequest&)>& make) {
  return std::make_unique<ConvertingLayer>(processor, request, make);
}

void CudaBackend::to_plain(Stream& stream, const ActivationSpec& activation, const void* from, const Tensor& to) {
  if (is_plain(activation)) return copy(stream, to, {const_cast<void*>(from), to.shape, to.type, to.space});
  convert_to_plain(as_cuda_stream(stream), activation, from, static_cast<float*>(to.data));
}

}  // namespace tutti::cuda
