#include "backend/cuda/layers.hpp"
#include "backend/cuda/runtime.hpp"
#include "backend/requests.hpp"
#include "floats.cuh"
#include "grids.cuh"

namespace tutti::cuda {
namespace {

struct GradientAddition {
  GradientSum sum;
  void* to = nullptr;
  std::int64_t packs = 0;
};

constexpr int kThreads = 256;

template <class T>
__global__ void gradient_addition(GradientAddition work) {
  const std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (i < work.packs) store(work.to, i, load<T>(work.sum, i));
}

struct Addition {
  RowGrid grid;
  const void* input = nullptr;
  const void* residual = nullptr;
  void* output = nullptr;
  bool relu = false;
  std::uint8_t* positive = nullptr;  // a byte for each pack, or null
};

struct AdditionGradient {
  RowGrid grid;
  GradientSum gradients;
  const std::uint8_t* positive = nullptr;  // or null: everywhere
  void* summed = nullptr;                  // gets the sum of the gradients where positive; or null
  void* copy = nullptr;                    // gets the same; or null
};

template <class T>
__global__ void __launch_bounds__(RowGrid::kThreads, 4) addition(Addition work) {
  const RowShare share = share_of_thread(work.grid, static_cast<int>(blockIdx.y));
  for_each_pack<2>(share, [&](auto count, std::int64_t first) {
    constexpr int kCount = decltype(count)::value;
    Floats<T> y[kCount];
#pragma unroll
    for (int n = 0; n < kCount; ++n) {
      y[n] = load<T>(work.input, first + n * share.step);
      add(y[n], load<T>(work.residual, first + n * share.step));
    }
#pragma unroll
    for (int n = 0; n < kCount; ++n) {
      const std::int64_t i = first + n * share.step;
      if (work.positive != nullptr) work.positive[i] = static_cast<std::uint8_t>(positive_bits(y[n]));
      if (work.relu) rectify(y[n]);
      store(work.output, i, y[n]);
    }
  });
}

template <class T, int kGradients>
__global__ void __launch_bounds__(RowGrid::kThreads, 4) addition_gradient(AdditionGradient work) {
  const RowShare share = share_of_thread(work.grid, static_cast<int>(blockIdx.y));
  for_each_pack<2>(share, [&](auto count, std::int64_t first) {
    constexpr int kCount = decltype(count)::value;
    GradientPacks<T, kGradients> gradients[kCount];
    unsigned bits[kCount] = {};
#pragma unroll
    for (int n = 0; n < kCount; ++n) {
      gradients[n] = load_packs<T, kGradients>(work.gradients, first + n * share.step);
      if (work.positive != nullptr) bits[n] = work.positive[first + n * share.step];
    }
#pragma unroll
    for (int n = 0; n < kCount; ++n) {
      const std::int64_t i = first + n * share.step;
      Floats<T> gradient = sum_of(gradients[n]);
      if (work.positive != nullptr) keep_bits(gradient, bits[n]);
      if (work.summed != nullptr) store(work.summed, i, gradient);
      if (work.copy != nullptr) store(work.copy, i, gradient);
    }
  });
}

template <class T>
auto addition_gradient_of(const GradientSum& gradients) {
  if (gradients.second == nullptr) return addition_gradient<T, 1>;
  return gradients.third == nullptr ? addition_gradient<T, 2> : addition_gradient<T, 3>;
}

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
    launch(type_ == ElementType::bf16 ? addition<Bf16> : addition<float>, grid_of(grid_),
           native(as_cuda_stream(stream)),
           Addition{.grid = grid_,
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
    launch(type_ == ElementType::bf16 ? addition_gradient_of<Bf16>(gradients) : addition_gradient_of<float>(gradients),
           grid_of(grid_), native(ours), AdditionGradient{grid_, gradients, positive(), summed, copy});
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

GradientSum gradients_of(CudaStream& stream, const LayerBackward& pass, const ActivationSpec& output) {
  const auto& gradients = pass.output_gradients;
  const auto at = [&](std::size_t i) -> void* { return i < gradients.size() ? gradients[i] : nullptr; };
  for (std::size_t i = 3; i < gradients.size(); i += 2) {
    const auto packs = static_cast<std::int64_t>(output.bytes / kPackBytes);
    const GradientAddition work{{at(2), at(i), at(i + 1)}, at(2), packs};
    const bool is_bf16 = format_of(output).type() == ElementType::bf16;
    launch(is_bf16 ? gradient_addition<Bf16> : gradient_addition<float>,
           {.blocks = (packs + kThreads - 1) / kThreads, .threads = kThreads}, native(stream), work);
  }
  return {at(0), at(1), at(2)};
}

}  // namespace tutti::cuda
