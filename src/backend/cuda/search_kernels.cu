#include "backend/cuda/format.hpp"
#include "backend/cuda/search_kernels.hpp"
#include "floats.cuh"

namespace tutti::cuda {
namespace {

constexpr int kThreads = 256;

__device__ inline float random_value(std::uint32_t number) {
  number = (number ^ number >> 16) * 0x7feb352du;
  number = (number ^ number >> 15) * 0x846ca68bu;
  return static_cast<float>(static_cast<std::int32_t>(number ^ number >> 16)) * 0x1p-31f;
}

template <class T>
__global__ void random_values(void* to, std::int64_t packs) {
  const std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (i >= packs) return;
  Floats<T> values;
#pragma unroll
  for (int k = 0; k < Floats<T>::kSize; ++k) {
    values.values[k] = random_value(static_cast<std::uint32_t>(i * Floats<T>::kSize + k));
  }
  store(to, i, values);
}

}  // namespace

void launch_random_values(cudaStream_t stream, ElementType type, void* to, std::size_t bytes) {
  const auto packs = static_cast<std::int64_t>(bytes / kPackBytes);
  const Grid grid{.blocks = (packs + kThreads - 1) / kThreads, .threads = kThreads};
  launch(type == ElementType::bf16 ? random_values<Bf16> : random_values<float>, grid, stream, to, packs);
}

}  // namespace tutti::cuda
