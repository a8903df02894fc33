#pragma once
// The per-channel gradients of batch norm's backward pass: a kernel that sums each chunk of rows, whose last block
// computes the gradients of scale and shift and the per-channel values of the propagation from these sums.

#include "norm_channels.cuh"

namespace tutti::cuda {

struct NormGradients {
  std::int64_t channels = 0;
  const float* scale = nullptr;
  double epsilon = 0;
  double sample_fraction = 1;
  bool frozen = false;  // the statistics do not depend on the batch
  NormChannels of;      // slope and gradient offset are written
  float* scale_gradient = nullptr;
  float* shift_gradient = nullptr;
  float* mean = nullptr;      // times the share, as is
  float* variance = nullptr;  // the unbiased one
  double* totals = nullptr;   // null, or receives the sums, as NormStatistics::totals
};

// The partial sums of gradients are those of the gradients and of gradient * (x - rounded mean).
struct NormGradientSums {
  RowGrid grid;
  GradientSum gradients;
  const void* input = nullptr;
  const std::uint8_t* positive = nullptr;  // or null: everywhere
  void* summed = nullptr;                  // gets the sum of the gradients where positive; or null
  PartialSums<float2> partials;
  NormGradients channels;
};

// dx = factor * (dy - mean of dy - (x - mean) / (variance + epsilon) * mean of dy * (x - mean)), or, with running
// statistics, factor * dy. Returns the gradient of the channel's scale.
__device__ inline double set_propagation(const NormGradients& work, int c, double n, const double (&sums)[2]) {
  const double inverse = 1 / sqrt(work.of.variance[c] + work.epsilon);
  const double factor = work.scale[c] * inverse;
  const double rounding = work.of.mean[c] - work.of.rounded_mean[c];
  const double product = sums[1] - rounding * sums[0];
  const double slope = factor * inverse * inverse * product / n;
  work.of.slope[c] = work.frozen ? 0.0f : static_cast<float>(slope);
  work.of.gradient_offset[c] = work.frozen ? 0.0f : static_cast<float>(factor * sums[0] / n - slope * rounding);
  return product * inverse;
}

__device__ inline void set_gradients(const NormGradients& work, int c, double rows, const double (&sums)[2]) {
  if (c >= work.channels) return;
  if (work.totals != nullptr) set_totals(work.totals, work.channels, c, rows, sums);
  work.scale_gradient[c] = static_cast<float>(set_propagation(work, c, rows, sums));
  work.shift_gradient[c] = static_cast<float>(sums[0]);
  work.mean[c] = static_cast<float>(work.of.mean[c] * work.sample_fraction);
  const double n = work.totals != nullptr ? *work.of.count : rows;
  const double unbiased = n > 1 ? n / (n - 1) : 1;
  work.variance[c] = static_cast<float>(work.of.variance[c] * unbiased * work.sample_fraction);
}

template <class T, int kGradients, class Blocks>
__global__ void __launch_bounds__(Blocks::kThreads, Blocks::kResident) norm_gradient_sums(NormGradientSums work) {
  constexpr int kSize = Floats<T>::kSize;
  constexpr int kUnroll = Blocks::kLoads / (kGradients == 3 ? 4 : 2);
  const RowShare share = share_of_thread(work.grid, reversed_chunk());
  Floats<T> mean{};
  if (share.begin < share.end) mean = load_channels<T>(work.channels.of.rounded_mean, share.pack);
  Floats<T> sums{};
  Floats<T> products{};
  for_each_pack<kUnroll>(share, [&](auto count, std::int64_t first) {
    constexpr int kCount = decltype(count)::value;
    Pack<T> x[kCount];
    GradientPacks<T, kGradients> gradients[kCount];
    unsigned bits[kCount] = {};
#pragma unroll
    for (int n = 0; n < kCount; ++n) {
      const std::int64_t i = first + n * share.step;
      x[n] = load_pack<T>(work.input, i);
      gradients[n] = load_packs<T, kGradients>(work.gradients, i);
      if (work.positive != nullptr) bits[n] = work.positive[i];
    }
#pragma unroll
    for (int n = 0; n < kCount; ++n) {
      Floats<T> gradient = sum_of(gradients[n]);
      if (work.positive != nullptr) keep_bits(gradient, bits[n]);
      if (work.summed != nullptr) store(work.summed, first + n * share.step, gradient);
      add(sums, gradient);
      const Floats<T> input = floats_of(x[n]);
#pragma unroll
      for (int k = 0; k < kSize; ++k) {
        products.values[k] += gradient.values[k] * (input.values[k] - mean.values[k]);
      }
    }
  });
  double both[2 * kSize];
#pragma unroll
  for (int k = 0; k < kSize; ++k) {
    both[2 * k] = sums.values[k];
    both[2 * k + 1] = products.values[k];
  }
  const auto part = [](double2 of_block) -> float2 {
    return {static_cast<float>(of_block.x), static_cast<float>(of_block.y)};
  };
  const auto add_chunk = [](double(&all)[2], float2 partial, int) {
    all[0] += partial.x;
    all[1] += partial.y;
  };
  const auto finish = [&](int channel, const double(&all)[2]) {
    set_gradients(work.channels, channel, static_cast<double>(work.grid.rows), all);
  };
  add_channels<Blocks::kThreads, kSize>(work.grid, work.partials, share, both, part, add_chunk, finish);
}

}  // namespace tutti::cuda
