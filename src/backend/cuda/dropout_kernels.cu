#include "backend/cuda/dropout_kernels.hpp"
#include "floats.cuh"
#include "random.cuh"
#include "runs.cuh"

namespace tutti::cuda {
namespace {

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

Runs samples_of(const ImageLayout& layout, ElementType type) {
  return {layout.samples, static_cast<int>(layout.pixels() * packs_of(layout, type))};
}

}  // namespace

void launch_place(cudaStream_t stream, const SamplePlace& place, SamplePlace* to) {
  launch(write_place, Grid{.threads = 1}, stream, place, to);
}

void launch_dropout(cudaStream_t stream, const Dropout& work) {
  const Runs samples = samples_of(work.layout, work.type);
  launch(work.type == ElementType::bf16 ? dropout<Bf16> : dropout<float>, samples.grid(), stream, work, samples);
}

void launch_dropout_gradient(cudaStream_t stream, const DropoutGradient& work) {
  const Runs samples = samples_of(work.layout, work.type);
  launch(work.type == ElementType::bf16 ? dropout_gradient<Bf16> : dropout_gradient<float>, samples.grid(), stream,
         work, samples);
}

}  // namespace tutti::cuda
