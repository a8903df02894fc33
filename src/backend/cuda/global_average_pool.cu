#include "backend/cuda/layers.hpp"
#include "backend/cuda/runtime.hpp"
#include "backend/requests.hpp"
#include "floats.cuh"
#include "grids.cuh"

namespace tutti::cuda {
namespace {

struct GlobalAverage {
  std::int64_t pixels;  // of each sample
  const void* input;
  void* output;
};

struct GlobalAverageGradient {
  std::int64_t pixels;
  GradientSum gradients;
  void* input_gradient;
};

template <class T>
__device__ inline void divide(Floats<T>& values, int by) {
#pragma unroll
  for (int k = 0; k < Floats<T>::kSize; ++k) values.values[k] /= static_cast<float>(by);
}

template <class T>
__global__ void global_average(GlobalAverage work, Runs outputs) {
  const auto pixels = static_cast<int>(work.pixels);
  for_each_pack(outputs, [&](int sample, int pack, std::int64_t i) {
    const std::int64_t first = static_cast<std::int64_t>(sample) * pixels * outputs.packs + pack;
    Floats<T> sum{};
#pragma unroll 4
    for (int pixel = 0; pixel < pixels; ++pixel) {
      add(sum, load<T>(work.input, first + static_cast<std::int64_t>(pixel) * outputs.packs));
    }
    divide(sum, pixels);
    store(work.output, i, sum);
  });
}

template <class T>
__global__ void global_average_gradient(GlobalAverageGradient work, Runs inputs) {
  const auto pixels = static_cast<int>(work.pixels);
  const int packs = inputs.packs / pixels;
  for_each_pack(inputs, [&](int sample, int at, std::int64_t i) {
    auto gradient = load<T>(work.gradients, static_cast<std::int64_t>(sample) * packs + at % packs);
    divide(gradient, pixels);
    store(work.input_gradient, i, gradient);
  });
}

class GlobalAveragePoolLayer final : public Layer {
 public:
  GlobalAveragePoolLayer(const GlobalAveragePoolSpec& spec, const LayerRequest& request)
      : mode_(request.mode),
        wants_input_gradient_(request.wants_input_gradient),
        type_(format_of(request.input).type()),
        layout_(layout_of(request.input)),
        output_(output_of(spec, request.input)) {}

  const ActivationSpec& output() const override { return output_; }
  bool reads_input() const override { return false; }
  bool reads_output() const override { return false; }

  void forward(Stream& stream, const LayerForward& pass) override {
    const Runs outputs{layout_.samples, static_cast<int>(packs_of(layout_, type_))};
    launch(type_ == ElementType::bf16 ? global_average<Bf16> : global_average<float>, outputs.grid(),
           native(as_cuda_stream(stream)), GlobalAverage{layout_.pixels(), pass.input, pass.output}, outputs);
  }

  void backward(Stream& stream, const LayerBackward& pass) override {
    require_training(mode_, pass);
    if (!wants_input_gradient_) return;
    CudaStream& ours = as_cuda_stream(stream);
    const Runs inputs{layout_.samples, static_cast<int>(layout_.pixels() * packs_of(layout_, type_))};
    launch(type_ == ElementType::bf16 ? global_average_gradient<Bf16> : global_average_gradient<float>, inputs.grid(),
           native(ours),
           GlobalAverageGradient{layout_.pixels(), gradients_of(ours, pass, output_), pass.input_gradient}, inputs);
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
