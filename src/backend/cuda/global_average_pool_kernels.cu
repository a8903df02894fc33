#include "backend/cuda/global_average_pool_kernels.hpp"
#include "floats.cuh"
#include "runs.cuh"

namespace tutti::cuda {
namespace {

template <class T>
__device__ inline void divide(Floats<T>& values, int by) {
#pragma unroll
  for (int k = 0; k < Floats<T>::kSize; ++k) values.values[k] /= static_cast<float>(by);
}

template <class T>
__global__ void global_average(GlobalAverage work, Runs outputs) {
  const auto pixels = static_cast<int>(work.layout.height * work.layout.width);
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
  const auto pixels = static_cast<int>(work.layout.height * work.layout.width);
  const int packs = inputs.packs / pixels;
  for_each_pack(inputs, [&](int sample, int at, std::int64_t i) {
    auto gradient = load<T>(work.gradients, static_cast<std::int64_t>(sample) * packs + at % packs);
    divide(gradient, pixels);
    store(work.input_gradient, i, gradient);
  });
}

}  // namespace

void launch_global_average(cudaStream_t stream, const GlobalAverage& work) {
  const Runs outputs{work.layout.samples, static_cast<int>(packs_of(work.layout, work.type))};
  launch(work.type == ElementType::bf16 ? global_average<Bf16> : global_average<float>, outputs.grid(), stream, work,
         outputs);
}

void launch_global_average_gradient(cudaStream_t stream, const GlobalAverageGradient& work) {
  const Runs inputs{work.layout.samples, static_cast<int>(work.layout.pixels() * packs_of(work.layout, work.type))};
  launch(work.type == ElementType::bf16 ? global_average_gradient<Bf16> : global_average_gradient<float>, inputs.grid(),
         stream, work, inputs);
}

}  // namespace tutti::cuda
