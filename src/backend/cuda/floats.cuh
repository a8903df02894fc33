#pragma once
// A pack of values as the f32 numbers that kernels reckon with.

#include "backend/cuda/gradient_sum_kernels.hpp"
#include "element.cuh"

namespace tutti::cuda {

template <class T>
struct Floats {
  static constexpr int kSize = Pack<T>::kSize;
  float values[kSize];
};

// Pack i of an activation.
template <class T>
__device__ inline Floats<T> load(const void* from, std::int64_t i) {
  const Pack<T> pack = static_cast<const Pack<T>*>(from)[i];
  Floats<T> floats;
#pragma unroll
  for (int k = 0; k < Floats<T>::kSize; ++k) floats.values[k] = to_float(pack.values[k]);
  return floats;
}

template <class T>
__device__ inline void store(void* to, std::int64_t i, const Floats<T>& floats) {
  Pack<T> pack;
#pragma unroll
  for (int k = 0; k < Floats<T>::kSize; ++k) set(pack.values[k], floats.values[k]);
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

// What is kept in f32 for each channel, of the channels of a pack.
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

// A bit for each value of a pack, in a byte: where it is positive.
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
