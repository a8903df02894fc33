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
__global__ void global_average(GlobalAverage work, Runs outputs, const void* input, void* output) {
  for_each_pack(outputs, [&](int sample, int pack, std::int64_t i) {
    const std::int64_t first = static_cast<std::int64_t>(sample) * work.pixels * work.packs + pack;
    Floats<T> sum{};
#pragma unroll 4
    for (int pixel = 0; pixel < work.pixels; ++pixel) {
      add(sum, load<T>(input, first + static_cast<std::int64_t>(pixel) * work.packs));
    }
    divide(sum, work.pixels);
    store(output, i, sum);
  });
}

template <class T>
__global__ void global_average_gradient(GlobalAverage work, Runs inputs, GradientSum gradients, void* input_gradient) {
  for_each_pack(inputs, [&](int sample, int at, std::int64_t i) {
    auto gradient = load<T>(gradients, static_cast<std::int64_t>(sample) * work.packs + at % work.packs);
    divide(gradient, work.pixels);
    store(input_gradient, i, gradient);
  });
}

}  // namespace

void launch_global_average(const GlobalAverage& work, const void* input, void* output, cudaStream_t stream) {
  const Runs outputs{work.samples, work.packs};
  launch(work.type == ElementType::bf16 ? global_average<Bf16> : global_average<float>, outputs.grid(), stream, work,
         outputs, input, output);
}

void launch_global_average_gradient(const GlobalAverage& work, const GradientSum& gradients, void* input_gradient,
                                    cudaStream_t stream) {
  const Runs inputs{work.samples, work.pixels * work.packs};
  launch(work.type == ElementType::bf16 ? global_average_gradient<Bf16> : global_average_gradient<float>, inputs.grid(),
         stream, work, inputs, gradients, input_gradient);
}

}  // namespace tutti::cuda
