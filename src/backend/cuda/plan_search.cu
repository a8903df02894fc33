#include "backend/cuda/plan_search.hpp"
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

void fill_with_random_values(CudaStream& stream, const Buffer& buffer, Precision precision) {
  const auto packs = static_cast<std::int64_t>(buffer.bytes() / kPackBytes);
  launch(precision == Precision::bf16 ? random_values<Bf16> : random_values<float>,
         {.blocks = (packs + kThreads - 1) / kThreads, .threads = kThreads}, native(stream), buffer.data(), packs);
}

}  // namespace tutti::cuda
