#include "tutti/base/random.hpp"

#include "backend/cuda/layers.hpp"
#include "backend/cuda/runtime.hpp"
#include "backend/requests.hpp"
#include "floats.cuh"
#include "grids.cuh"

#include <cmath>

namespace tutti::cuda {
namespace {

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

void launch_gradient(cudaStream_t stream, ElementType type, const AdditionGradient& work) {
  launch(type == ElementType::bf16 ? addition_gradient_of<Bf16>(work.gradients)
                                   : addition_gradient_of<float>(work.gradients),
         grid_of(work.grid), stream, work);
}

class AddLayer final : public CudaLayer {
 public:
  AddLayer(const Processor& processor, const AddSpec& spec, const LayerRequest& request)
      : CudaLayer(request, request.input, with_mask(backward_reads(spec))),
        spec_(spec),
        grid_(share_rows(layout_of(request.input), type_, {.blocks = elementwise_blocks(processor.device)})) {
    if (spec.relu && mode_ == LayerMode::training) {
      positive_ = allocate_cuda(processor.device, output_.bytes / kPackBytes);
    }
  }

  bool residual_gradient_in_place() const override { return true; }

  void forward(Stream& stream, const LayerForward& pass) override {
    launch(is_bf16() ? addition<Bf16> : addition<float>, grid_of(grid_), native(as_cuda_stream(stream)),
           Addition{.grid = grid_,
                    .input = pass.input,
                    .residual = pass.residual,
                    .output = pass.output,
                    .relu = spec_.relu,
                    .positive = positive()});
  }

  void backward(Stream& stream, const LayerBackward& pass) override {
    require_training(pass);
    CudaStream& ours = as_cuda_stream(stream);
    const GradientSum gradients = reduce_to_three(ours, pass, output_);
    const bool differs = gradients.second != nullptr || spec_.relu;
    void* const summed = differs && pass.residual_gradient != nullptr ? pass.output_gradients[0] : nullptr;
    void* const copy = pass.input_gradient;
    if (summed == nullptr && copy == nullptr) return;
    launch_gradient(native(ours), type_, {grid_, gradients, positive(), summed, copy});
  }

 private:
  std::uint8_t* positive() const { return static_cast<std::uint8_t*>(positive_.data()); }

  AddSpec spec_;
  RowGrid grid_;
  Buffer positive_;  // of the last output; empty without ReLU
};

// The numbers of base/random.hpp: the same bits for the same seed and counter.
struct RandomWords {
  std::uint32_t first;
  std::uint32_t second;
  std::uint32_t third;
  std::uint32_t fourth;

  __device__ std::uint32_t word(unsigned index) const {
    if (index < 2) return index == 0 ? first : second;
    return index == 2 ? third : fourth;
  }
};

__device__ inline RandomWords random_words(std::uint64_t seed, const RandomCounter& counter) {
  auto key0 = static_cast<std::uint32_t>(seed);
  auto key1 = static_cast<std::uint32_t>(seed >> 32);
  RandomWords x{counter.draw, counter.item, counter.when, counter.purpose};
#pragma unroll
  for (int round = 0; round < 10; ++round) {
    const std::uint64_t product0 = std::uint64_t{0xD2511F53u} * x.first;
    const std::uint64_t product1 = std::uint64_t{0xCD9E8D57u} * x.third;
    x = {static_cast<std::uint32_t>(product1 >> 32) ^ x.second ^ key0, static_cast<std::uint32_t>(product1),
         static_cast<std::uint32_t>(product0 >> 32) ^ x.fourth ^ key1, static_cast<std::uint32_t>(product0)};
    key0 += 0x9E3779B9u;
    key1 += 0xBB67AE85u;
  }
  return x;
}

struct Dropout {
  ImageLayout layout;
  const BatchPosition* place = nullptr;  // in the device's memory
  std::uint32_t purpose = 0;
  std::uint64_t drop_below = 0;  // values whose random word, one of 2^32, is below this are dropped
  float factor = 1;              // for the values that stay
  const void* input = nullptr;
  void* output = nullptr;
  std::uint8_t* kept = nullptr;  // a byte for each pack, with a bit for each value
};

struct DropoutGradient {
  GradientSum gradients;
  const std::uint8_t* kept;
  float factor;
  void* input_gradient;
};

// Writes to the device's memory, so that a CUDA graph reads what was written after its capture.
__global__ void write_place(BatchPosition place, BatchPosition* to) { *to = place; }

// Value e of a sample in C, H, W order takes word e % 4 of draw e / 4, whatever the layout.
template <int kSize>
__device__ inline unsigned kept_bits(const Dropout& of, const BatchPosition& place, std::uint32_t sample,
                                     std::uint32_t element, std::uint32_t pixels) {
  RandomCounter counter{
      .draw = element / 4, .item = place.first_position + sample, .when = place.step, .purpose = of.purpose};
  RandomWords words = random_words(place.seed, counter);
  unsigned bits = 0;
#pragma unroll
  for (int k = 0; k < kSize; ++k, element += pixels) {
    if (element / 4 != counter.draw) {
      counter.draw = element / 4;
      words = random_words(place.seed, counter);
    }
    bits |= words.word(element % 4) >= of.drop_below ? 1u << k : 0u;
  }
  return bits;
}

template <class T>
__device__ inline void drop(Floats<T>& values, unsigned kept, float factor) {
#pragma unroll
  for (int k = 0; k < Floats<T>::kSize; ++k) values.values[k] *= factor;
  keep_bits(values, kept);  // dropped values become 0 even where they are not finite
}

template <class T>
__global__ void dropout(Dropout work, Runs samples) {
  constexpr int kSize = Floats<T>::kSize;
  const BatchPosition place = *work.place;
  const auto packs = static_cast<int>(work.layout.padded_channels) / kSize;
  const auto pixels = static_cast<std::uint32_t>(work.layout.height * work.layout.width);
  for_each_pack(samples, [&](int sample, int at, std::int64_t i) {
    const auto channel = static_cast<std::uint32_t>(at % packs * kSize);
    const std::uint32_t element = channel * pixels + static_cast<std::uint32_t>(at / packs);
    Floats<T> values = load<T>(work.input, i);
    const unsigned kept = kept_bits<kSize>(work, place, static_cast<std::uint32_t>(sample), element, pixels);
    work.kept[i] = static_cast<std::uint8_t>(kept);
    drop(values, kept, work.factor);
    store(work.output, i, values);
  });
}

template <class T>
__global__ void dropout_gradient(DropoutGradient work, Runs samples) {
  for_each_pack(samples, [&](int, int, std::int64_t i) {
    Floats<T> gradient = load<T>(work.gradients, i);
    drop(gradient, work.kept[i], work.factor);
    store(work.input_gradient, i, gradient);
  });
}

class DropoutLayer final : public CudaLayer {
 public:
  DropoutLayer(const Processor& processor, const DropoutSpec& spec, const LayerRequest& request)
      : CudaLayer(request, request.input, backward_reads(spec)) {
    if (mode_ == LayerMode::evaluation) return;
    place_ = allocate_cuda(processor.device, sizeof(BatchPosition));
    kept_ = allocate_cuda(processor.device, output_.bytes / kPackBytes);
    const ImageLayout layout = layout_of(request.input);
    samples_ = {layout.samples, static_cast<int>(layout.pixels() * packs_of(layout, type_))};
    work_ = {.layout = layout,
             .place = static_cast<const BatchPosition*>(place_.data()),
             .purpose = request.random_purpose,
             .drop_below = static_cast<std::uint64_t>(std::llrint(spec.rate * 0x1p32)),
             .factor = static_cast<float>(1 / (1 - spec.rate)),
             .kept = static_cast<std::uint8_t*>(kept_.data())};
  }

  void set_batch_position(Stream& stream, const BatchPosition& place) override {
    if (mode_ == LayerMode::evaluation) return;
    launch(write_place, {.threads = 1}, native(as_cuda_stream(stream)), place,
           static_cast<BatchPosition*>(place_.data()));
  }

  void forward(Stream& stream, const LayerForward& pass) override {
    const cudaStream_t cuda = native(as_cuda_stream(stream));
    if (mode_ == LayerMode::evaluation) {
      check(cudaMemcpyAsync(pass.output, pass.input, output_.bytes, cudaMemcpyDeviceToDevice, cuda));
      return;
    }
    work_.input = pass.input;
    work_.output = pass.output;
    launch(is_bf16() ? dropout<Bf16> : dropout<float>, samples_.grid(), cuda, work_, samples_);
  }

  void backward(Stream& stream, const LayerBackward& pass) override {
    require_training(pass);
    if (pass.input_gradient == nullptr) return;
    CudaStream& ours = as_cuda_stream(stream);
    const DropoutGradient work{reduce_to_three(ours, pass, output_), work_.kept, work_.factor, pass.input_gradient};
    launch(is_bf16() ? dropout_gradient<Bf16> : dropout_gradient<float>, samples_.grid(), native(ours), work, samples_);
  }

 private:
  Runs samples_;
  Dropout work_;
  Buffer place_;
  Buffer kept_;  // of the last output
};

struct Mapping {
  RowGrid grid;
  ElementwiseSpec spec;
  const void* input = nullptr;
  void* output = nullptr;
};

struct MappingGradient {
  RowGrid grid;
  ElementwiseSpec spec;
  GradientSum gradients;
  const void* values = nullptr;  // the input or output, whichever backward_reads() lists; null for scale
  void* input_gradient = nullptr;
};

__device__ inline float normal_distribution(float x) { return 0.5f * erfcf(x * -0.707106781f); }
__device__ inline float sigmoid(float x) { return 1 / (1 + expf(-x)); }

__device__ inline float value_of(const ElementwiseSpec& spec, float x) {
  switch (spec.function) {
    case Function::relu6:
      if (x < 0) return 0;  // NaN stays NaN
      return x > 6 ? 6.0f : x;
    case Function::gelu:
      return x * normal_distribution(x);
    case Function::silu:
      return x * sigmoid(x);
    case Function::scale:
      return x * static_cast<float>(spec.factor);
  }
  return 0;
}

__device__ inline float derivative_of(const ElementwiseSpec& spec, float value) {
  switch (spec.function) {
    case Function::relu6:
      return value > 0 && value < 6 ? 1.0f : 0.0f;
    case Function::gelu:
      return normal_distribution(value) + value * expf(-0.5f * value * value) * 0.398942280f;
    case Function::silu: {
      const float y = sigmoid(value);
      return y + value * y * (1 - y);
    }
    case Function::scale:
      return static_cast<float>(spec.factor);
  }
  return 0;
}

template <class T>
__global__ void __launch_bounds__(RowGrid::kThreads, 4) mapping(Mapping work) {
  for_each_pack<1>(share_of_thread(work.grid, static_cast<int>(blockIdx.y)), [&](auto, std::int64_t i) {
    Floats<T> y = load<T>(work.input, i);
#pragma unroll
    for (int k = 0; k < Floats<T>::kSize; ++k) y.values[k] = value_of(work.spec, y.values[k]);
    store(work.output, i, y);
  });
}

template <class T>
__global__ void __launch_bounds__(RowGrid::kThreads, 4) mapping_gradient(MappingGradient work) {
  for_each_pack<1>(share_of_thread(work.grid, static_cast<int>(blockIdx.y)), [&](auto, std::int64_t i) {
    Floats<T> gradient = load<T>(work.gradients, i);
    const Floats<T> values = work.values == nullptr ? gradient : load<T>(work.values, i);
#pragma unroll
    for (int k = 0; k < Floats<T>::kSize; ++k) gradient.values[k] *= derivative_of(work.spec, values.values[k]);
    store(work.input_gradient, i, gradient);
  });
}

class ElementwiseLayer final : public CudaLayer {
 public:
  ElementwiseLayer(const Processor& processor, const ElementwiseSpec& spec, const LayerRequest& request)
      : CudaLayer(request, request.input, backward_reads(spec)),
        spec_(spec),
        grid_(share_rows(layout_of(request.input), type_, {.blocks = elementwise_blocks(processor.device)})) {}

  void forward(Stream& stream, const LayerForward& pass) override {
    launch(is_bf16() ? mapping<Bf16> : mapping<float>, grid_of(grid_), native(as_cuda_stream(stream)),
           Mapping{grid_, spec_, pass.input, pass.output});
  }

  void backward(Stream& stream, const LayerBackward& pass) override {
    require_training(pass);
    if (pass.input_gradient == nullptr) return;
    CudaStream& ours = as_cuda_stream(stream);
    const void* const values = reads_input() ? pass.input : reads_output() ? pass.output : nullptr;
    launch(is_bf16() ? mapping_gradient<Bf16> : mapping_gradient<float>, grid_of(grid_), native(ours),
           MappingGradient{grid_, spec_, reduce_to_three(ours, pass, output_), values, pass.input_gradient});
  }

 private:
  ElementwiseSpec spec_;
  RowGrid grid_;
};

}  // namespace

std::unique_ptr<Layer> make(const Processor& processor, const AddSpec& spec, const LayerRequest& request) {
  require_residual(spec, request);
  return std::make_unique<AddLayer>(processor, spec, request);
}

std::unique_ptr<Layer> make(const Processor& processor, const DropoutSpec& spec, const LayerRequest& request) {
  return std::make_unique<DropoutLayer>(processor, spec, request);
}

std::unique_ptr<Layer> make(const Processor& processor, const ElementwiseSpec& spec, const LayerRequest& request) {
  return std::make_unique<ElementwiseLayer>(processor, spec, request);
}

GradientSum reduce_to_three(CudaStream& stream, const LayerBackward& pass, const ActivationSpec& output) {
  const auto& gradients = pass.output_gradients;
  const auto at = [&](std::size_t i) -> void* { return i < gradients.size() ? gradients[i] : nullptr; };
  for (std::size_t i = 3; i < gradients.size(); i += 2) {
    const ElementType type = format_of(output).type();
    launch_gradient(native(stream), type,
                    {.grid = share_rows(layout_of(output), type, {.blocks = elementwise_blocks(stream.device())}),
                     .gradients = {at(2), at(i), at(i + 1)},
                     .summed = at(2)});
  }
  return {at(0), at(1), at(2)};
}

}  // namespace tutti::cuda
