#pragma once
// The kernels of batch norm that go over the values, with what the sums left per channel: the forward pass's
// application and the backward pass's propagation.

#include "norm_channels.cuh"

namespace tutti::cuda {

struct NormApplication {
  RowGrid grid;
  const void* input = nullptr;
  const void* residual = nullptr;  // or null
  void* output = nullptr;
  bool relu = false;
  std::uint8_t* positive = nullptr;  // a byte for each pack, or null
  NormChannels channels;
};

struct NormPropagation {
  RowGrid grid;
  const void* gradient = nullptr;
  const std::uint8_t* positive = nullptr;  // or null: everywhere
  const void* input = nullptr;
  void* input_gradient = nullptr;
  NormChannels channels;
};

template <class T>
__global__ void __launch_bounds__(RowGrid::kThreads, 4) norm_application(NormApplication work) {
  constexpr int kSize = Floats<T>::kSize;
  const RowShare share = share_of_thread(work.grid, static_cast<int>(blockIdx.y));
  if (share.begin >= share.end) return;
  const auto mean = load_channels<T>(work.channels.rounded_mean, share.pack);
  const auto factor = load_channels<T>(work.channels.factor, share.pack);
  const auto offset = load_channels<T>(work.channels.offset, share.pack);
  for_each_pack<2>(share, [&](auto count, std::int64_t first) {
    constexpr int kCount = decltype(count)::value;
    Pack<T> x[kCount];
    Pack<T> residual[kCount] = {};
#pragma unroll
    for (int n = 0; n < kCount; ++n) {
      const std::int64_t i = first + n * share.step;
      x[n] = load_pack<T>(work.input, i);
      if (work.residual != nullptr) residual[n] = load_pack<T>(work.residual, i);
    }
#pragma unroll
    for (int n = 0; n < kCount; ++n) {
      const std::int64_t i = first + n * share.step;
      Floats<T> y = floats_of(x[n]);
#pragma unroll
      for (int k = 0; k < kSize; ++k) {
        y.values[k] = (y.values[k] - mean.values[k]) * factor.values[k] + offset.values[k];
      }
      if (work.residual != nullptr) add(y, floats_of(residual[n]));
      if (work.positive != nullptr) work.positive[i] = static_cast<std::uint8_t>(positive_bits(y));
      if (work.relu) rectify(y);
      store(work.output, i, y);
    }
  });
}

template <class T>
__global__ void __launch_bounds__(RowGrid::kThreads, 3) norm_propagation(NormPropagation work) {
  constexpr int kSize = Floats<T>::kSize;
  const RowShare share = share_of_thread(work.grid, static_cast<int>(blockIdx.y));
  if (share.begin >= share.end) return;
  const auto mean = load_channels<T>(work.channels.rounded_mean, share.pack);
  const auto factor = load_channels<T>(work.channels.factor, share.pack);
  const auto slope = load_channels<T>(work.channels.slope, share.pack);
  const auto offset = load_channels<T>(work.channels.gradient_offset, share.pack);
  for_each_pack<2>(share, [&](auto count, std::int64_t first) {
    constexpr int kCount = decltype(count)::value;
    Pack<T> x[kCount];
    Pack<T> gradients[kCount];
    unsigned bits[kCount] = {};
#pragma unroll
    for (int n = 0; n < kCount; ++n) {
      const std::int64_t i = first + n * share.step;
      x[n] = load_pack<T>(work.input, i);
      gradients[n] = load_pack<T>(work.gradient, i);
      if (work.positive != nullptr) bits[n] = work.positive[i];
    }
#pragma unroll
    for (int n = 0; n < kCount; ++n) {
      const Floats<T> input = floats_of(x[n]);
      Floats<T> gradient = floats_of(gradients[n]);
      if (work.positive != nullptr) keep_bits(gradient, bits[n]);
#pragma unroll
      for (int k = 0; k < kSize; ++k) {
        gradient.values[k] = gradient.values[k] * factor.values[k] -
                             (input.values[k] - mean.values[k]) * slope.values[k] - offset.values[k];
      }
      store(work.input_gradient, first + n * share.step, gradient);
    }
  });
}

}  // namespace tutti::cuda
