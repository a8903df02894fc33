#include "backend/cuda/add_kernels.hpp"
#include "floats.cuh"
#include "rows.cuh"

namespace tutti::cuda {
namespace {

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

}  // namespace

void launch_addition(cudaStream_t stream, ElementType type, const Addition& work) {
  launch(type == ElementType::bf16 ? addition<Bf16> : addition<float>, grid_of(work.grid), stream, work);
}

void launch_addition_gradient(cudaStream_t stream, ElementType type, const AdditionGradient& work) {
  launch(type == ElementType::bf16 ? addition_gradient_of<Bf16>(work.gradients)
                                   : addition_gradient_of<float>(work.gradients),
         grid_of(work.grid), stream, work);
}

}  // namespace tutti::cuda
