#pragma once
// The values that layers compute on, one by one and sixteen bytes at a time. Arithmetic is f32 throughout.

#include "kernel.cuh"

namespace tutti::cuda {

using Bf16 = __nv_bfloat16;

__device__ inline float to_float(float value) { return value; }
__device__ inline float to_float(Bf16 value) { return __bfloat162float(value); }
__device__ inline void set(float& to, float value) { to = value; }
__device__ inline void set(Bf16& to, float value) { to = __float2bfloat16_rn(value); }
// Neighbours are rounded by one instruction.
__device__ inline void set_pair(float* to, float2 values) {
  to[0] = values.x;
  to[1] = values.y;
}
__device__ inline void set_pair(Bf16* to, float2 values) {
  const __nv_bfloat162 rounded = __floats2bfloat162_rn(values.x, values.y);
  to[0] = rounded.x;
  to[1] = rounded.y;
}

// Neighbouring channels of one pixel: read and written as one.
template <class T>
struct alignas(16) Pack {
  static constexpr int kSize = 16 / static_cast<int>(sizeof(T));
  T values[kSize];
};

}  // namespace tutti::cuda
