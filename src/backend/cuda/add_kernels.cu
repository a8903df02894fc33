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

template <class T>
__global__ void __launch_bounds__(RowGrid::kThreads, 4) addition_gradient(AdditionGradient work) {
  const RowShare share = share_of_thread(work.grid, static_cast<int>(blockIdx.y));
  for_each_pack<2>(share, [&](auto count, std::int64_t first) {
    constexpr int kCount = decltype(count)::value;
    Floats<T> gradient[kCount];
    unsigned bits[kCount] = {};
#pragma unroll
    for (int n = 0; n < kCount; ++n) {
      gradient[n] = load<T>(work.gradients, first + n * share.step);
      if (work.positive != nullptr) bits[n] = work.positive[first + n * share.step];
    }
#pragma unroll
    for (int n = 0; n < kCount; ++n) {
      const std::int64_t i = first + n * share.step;
      if (work.positive != nullptr) keep_bits(gradient[n], bits[n]);
      if (work.summed != nullptr) store(work.summed, i, gradient[n]);
      if (work.copy != nullptr) store(work.copy, i, gradient[n]);
    }
  });
}

}  // namespace

void launch_addition(ElementType type, const Addition& work, cudaStream_t stream) {
  launch(type == ElementType::bf16 ? addition<Bf16> : addition<float>, grid_of(work.grid), stream, work);
}

void launch_addition_gradient(ElementType type, const AdditionGradient& work, cudaStream_t stream) {
  launch(type == ElementType::bf16 ? addition_gradient<Bf16> : addition_gradient<float>, grid_of(work.grid), stream,
         work);
}

}  // namespace tutti::cuda
