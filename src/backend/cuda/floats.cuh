#pragma once
// Activation values in packs of 16 bytes, and their f32 values, in which kernels compute.

#include "backend/cuda/format.hpp"
#include "kernel.cuh"

namespace tutti::cuda {

using Bf16 = __nv_bfloat16;

__device__ inline float to_float(float value) { return value; }
__device__ inline float to_float(Bf16 value) { return __bfloat162float(value); }
__device__ inline void set(float& to, float value) { to = value; }
__device__ inline void set(Bf16& to, float value) { to = __float2bfloat16_rn(value); }
// One instruction rounds two values.
__device__ inline void set_pair(float* to, float2 values) {
  to[0] = values.x;
  to[1] = values.y;
}
__device__ inline void set_pair(Bf16* to, float2 values) {
  const __nv_bfloat162 rounded = __floats2bfloat162_rn(values.x, values.y);
  to[0] = rounded.x;
  to[1] = rounded.y;
}

// Adjacent channels of one pixel, which are read and written in one access.
template <class T>
struct alignas(16) Pack {
  static constexpr int kSize = 16 / static_cast<int>(sizeof(T));
  T values[kSize];
};

template <class T>
struct Floats {
  static constexpr int kSize = Pack<T>::kSize;
  float values[kSize];
};

template <class T>
__device__ inline Floats<T> floats_of(const Pack<T>& pack) {
  Floats<T> floats;
#pragma unroll
  for (int k = 0; k < Floats<T>::kSize; ++k) floats.values[k] = to_float(pack.values[k]);
  return floats;
}

// Pack i of an activation. Under a condition, load whole packs before using any of their values: a use within the
// condition would delay the loads that follow.
template <class T>
__device__ inline Pack<T> load_pack(const void* from, std::int64_t i) {
  return static_cast<const Pack<T>*>(from)[i];
}

template <class T>
__device__ inline Floats<T> load(const void* from, std::int64_t i) {
  return floats_of(load_pack<T>(from, i));
}

template <class T>
__device__ inline void store(void* to, std::int64_t i, const Floats<T>& floats) {
  Pack<T> pack;
#pragma unroll
  for (int k = 0; k < Floats<T>::kSize; k += 2) set_pair(&pack.values[k], {floats.values[k], floats.values[k + 1]});
  static_cast<Pack<T>*>(to)[i] = pack;
}

template <class T>
__device__ inline void add(Floats<T>& sum, const Floats<T>& more) {
#pragma unroll
  for (int k = 0; k < Floats<T>::kSize; ++k) sum.values[k] += more.values[k];
}

template <class T>
__device__ inline Floats<T> load(const GradientSum& gradients, std::int64_t i) {
  Floats<T> sum = load<T>(gradients.first, i);
  if (gradients.second != nullptr) add(sum, load<T>(gradients.second, i));
  if (gradients.third != nullptr) add(sum, load<T>(gradients.third, i));
  return sum;
}

// The same for a known number of gradients, in two steps.
template <class T, int kGradients>
struct GradientPacks {
  Pack<T> packs[kGradients];
};

template <class T, int kGradients>
__device__ inline GradientPacks<T, kGradients> load_packs(const GradientSum& gradients, std::int64_t i) {
  GradientPacks<T, kGradients> loaded;
  loaded.packs[0] = load_pack<T>(gradients.first, i);
  if constexpr (kGradients > 1) loaded.packs[1] = load_pack<T>(gradients.second, i);
  if constexpr (kGradients > 2) loaded.packs[2] = load_pack<T>(gradients.third, i);
  return loaded;
}

template <class T, int kGradients>
__device__ inline Floats<T> sum_of(const GradientPacks<T, kGradients>& loaded) {
  Floats<T> sum = floats_of(loaded.packs[0]);
#pragma unroll
  for (int n = 1; n < kGradients; ++n) add(sum, floats_of(loaded.packs[n]));
  return sum;
}

// A pack's channels of a per-channel f32 array.
template <class T>
__device__ inline Floats<T> load_channels(const float* from, int pack) {
  constexpr int kFour = Pack<float>::kSize;
  Floats<T> floats;
#pragma unroll
  for (int k = 0; k < Floats<T>::kSize; k += kFour) {
    const Pack<float> four = reinterpret_cast<const Pack<float>*>(from)[(pack * Floats<T>::kSize + k) / kFour];
#pragma unroll
    for (int j = 0; j < kFour; ++j) floats.values[k + j] = four.values[j];
  }
  return floats;
}

// max(0, value); NaN stays NaN.
template <class T>
__device__ inline void rectify(Floats<T>& floats) {
#pragma unroll
  for (int k = 0; k < Floats<T>::kSize; ++k) floats.values[k] = floats.values[k] < 0 ? 0.0f : floats.values[k];
}

// A bit mask of the positive values of a pack.
template <class T>
__device__ inline unsigned positive_bits(const Floats<T>& floats) {
  unsigned bits = 0;
#pragma unroll
  for (int k = 0; k < Floats<T>::kSize; ++k) bits |= floats.values[k] > 0 ? 1u << k : 0u;
  return bits;
}

template <class T>
__device__ inline void keep_bits(Floats<T>& floats, unsigned bits) {
#pragma unroll
  for (int k = 0; k < Floats<T>::kSize; ++k) floats.values[k] = (bits >> k & 1u) != 0 ? floats.values[k] : 0.0f;
}

}  // namespace tutti::cuda
