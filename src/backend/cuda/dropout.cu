#include "tutti/base/random.hpp"

#include "backend/cuda/layers.hpp"
#include "backend/cuda/runtime.hpp"
#include "backend/requests.hpp"
#include "floats.cuh"
#include "grids.cuh"

#include <cmath>

namespace tutti::cuda {
namespace {

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
  const SamplePlace* place = nullptr;  // in the device's memory
  std::uint32_t purpose = 0;
  std::uint64_t drop_below = 0;  // what is dropped: of 2^32 random words, those below
  float factor = 1;              // of what is kept
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

// Into the device's memory, so that a CUDA graph finds there what was written since.
__global__ void write_place(SamplePlace place, SamplePlace* to) { *to = place; }

// Value e of a sample in C, H, W order takes word e % 4 of draw e / 4, whatever the layout.
template <int kSize>
__device__ inline unsigned kept_bits(const Dropout& of, const SamplePlace& place, std::uint32_t sample,
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
  keep_bits(values, kept);  // what is dropped becomes 0 even where it is not finite
}

template <class T>
__global__ void dropout(Dropout work, Runs samples) {
  constexpr int kSize = Floats<T>::kSize;
  const SamplePlace place = *work.place;
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

class DropoutLayer final : public Layer {
 public:
  DropoutLayer(const Processor& processor, const DropoutSpec& spec, const LayerRequest& request)
      : mode_(request.mode), wants_input_gradient_(request.wants_input_gradient), output_(request.input) {
    if (mode_ == LayerMode::evaluation) return;
    place_ = allocate_cuda(processor.device, sizeof(SamplePlace));
    kept_ = allocate_cuda(processor.device, output_.bytes / kPackBytes);
    const ImageLayout layout = layout_of(request.input);
    type_ = format_of(request.input).type();
    samples_ = {layout.samples, static_cast<int>(layout.pixels() * packs_of(layout, type_))};
    work_ = {.layout = layout,
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
    launch(write_place, {.threads = 1}, native(as_cuda_stream(stream)), place,
           static_cast<SamplePlace*>(place_.data()));
  }

  void forward(Stream& stream, const LayerForward& pass) override {
    const cudaStream_t cuda = native(as_cuda_stream(stream));
    if (mode_ == LayerMode::evaluation) {
      check(cudaMemcpyAsync(pass.output, pass.input, output_.bytes, cudaMemcpyDeviceToDevice, cuda));
      return;
    }
    work_.input = pass.input;
    work_.output = pass.output;
    launch(type_ == ElementType::bf16 ? dropout<Bf16> : dropout<float>, samples_.grid(), cuda, work_, samples_);
  }

  void backward(Stream& stream, const LayerBackward& pass) override {
    require_training(mode_, pass);
    if (!wants_input_gradient_) return;
    CudaStream& ours = as_cuda_stream(stream);
    const DropoutGradient work{gradients_of(ours, pass, output_), work_.kept, work_.factor, pass.input_gradient};
    launch(type_ == ElementType::bf16 ? dropout_gradient<Bf16> : dropout_gradient<float>, samples_.grid(), native(ours),
           work, samples_);
  }

 private:
  LayerMode mode_;
  bool wants_input_gradient_;
  ActivationSpec output_;
  ElementType type_ = ElementType::f32;
  Runs samples_;
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
