#include "backend/cuda/bias_kernels.hpp"
#include "floats.cuh"
#include "rows.cuh"

namespace tutti::cuda {
namespace {

// The canonical bias ends with the last channel.
template <class T>
__device__ inline Floats<T> bias_of_pack(const BiasRelu& work, int pack) {
  Floats<T> bias{};
  if (work.bias == nullptr) return bias;
#pragma unroll
  for (int k = 0; k < Floats<T>::kSize; ++k) {
    const int channel = pack * Floats<T>::kSize + k;
    if (channel < work.channels) bias.values[k] = work.bias[channel];
  }
  return bias;
}

template <class T>
__global__ void __launch_bounds__(RowGrid::kThreads, 4) bias_relu(BiasRelu work) {
  const RowShare share = share_of_thread(work.grid, static_cast<int>(blockIdx.y));
  if (share.begin >= share.end) return;
  const Floats<T> bias = bias_of_pack<T>(work, share.pack);
  for_each_pack<2>(share, [&](auto count, std::int64_t first) {
    constexpr int kCount = decltype(count)::value;
    Floats<T> y[kCount];
#pragma unroll
    for (int n = 0; n < kCount; ++n) y[n] = load<T>(work.values, first + n * share.step);
#pragma unroll
    for (int n = 0; n < kCount; ++n) {
      add(y[n], bias);
      if (work.relu) rectify(y[n]);
      store(work.values, first + n * share.step, y[n]);
    }
  });
}

template <class T>
__global__ void __launch_bounds__(RowGrid::kThreads, 4) output_gradient(OutputGradient work) {
  constexpr int kSize = Floats<T>::kSize;
  const RowShare share = share_of_thread(work.grid, static_cast<int>(blockIdx.y));
  Floats<T> sums{};
  for_each_pack<2>(share, [&](auto count, std::int64_t first) {
    constexpr int kCount = decltype(count)::value;
    Floats<T> gradient[kCount] = {};
    unsigned bits[kCount] = {};
#pragma unroll
    for (int n = 0; n < kCount; ++n) {
      gradient[n] = load<T>(work.gradients, first + n * share.step);
      if (work.output != nullptr) bits[n] = positive_bits(load<T>(work.output, first + n * share.step));
    }
#pragma unroll
    for (int n = 0; n < kCount; ++n) {
      if (work.output != nullptr) keep_bits(gradient[n], bits[n]);
      if (work.result != nullptr) store(work.result, first + n * share.step, gradient[n]);
      add(sums, gradient[n]);
    }
  });
  if (work.partials == nullptr) return;
  double values[kSize];
#pragma unroll
  for (int k = 0; k < kSize; ++k) values[k] = sums.values[k];
  add_rows({work.grid.width, work.grid.height}, values);
  if (share.row != 0 || share.begin >= share.end) return;
  float* const to = work.partials + (static_cast<std::int64_t>(blockIdx.y) * work.grid.packs + share.pack) * kSize;
#pragma unroll
  for (int k = 0; k < kSize; ++k) to[k] = static_cast<float>(values[k]);
}

}  // namespace

void launch_bias_relu(cudaStream_t stream, ElementType type, const BiasRelu& work) {
  launch(type == ElementType::bf16 ? bias_relu<Bf16> : bias_relu<float>, grid_of(work.grid), stream, work);
}

void launch_output_gradient(cudaStream_t stream, ElementType type, const OutputGradient& work) {
  launch(type == ElementType::bf16 ? output_gradient<Bf16> : output_gradient<float>, grid_of(work.grid), stream, work);
}

}  // namespace tutti::cuda
