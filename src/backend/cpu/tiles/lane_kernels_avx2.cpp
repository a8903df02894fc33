// Compiled for AVX2.
#include "backend/cpu/tiles/lane_kernels.hpp"

#include <immintrin.h>

#include <cstring>

namespace tutti::cpu {
namespace avx2 {
namespace {

#include "backend/cpu/tiles/registers_avx2.inc"

using Mask = std::int64_t;  // the number of lanes, which are mostly all
inline Mask first_lanes(std::int64_t count) { return count; }

template <class T>
inline Floats load(const T* from, Mask lanes) {
  if (lanes == kWidth) return load(from);
  T values[kWidth] = {};
  std::memcpy(values, from, static_cast<std::size_t>(lanes) * sizeof(T));
  return load(values);
}
inline void store(float* to, const Floats& v) { std::memcpy(to, &v, sizeof v); }
inline void store(float* to, const Floats& v, Mask lanes) {
  if (lanes == kWidth) return store(to, v);
  std::memcpy(to, &v, static_cast<std::size_t>(lanes) * sizeof(float));
}
inline void store(Bf16* to, const Floats& v, Mask lanes) {
  const Halves halves = narrow_by_bits(v);
  if (lanes == kWidth) {
    std::memcpy(to, &halves, sizeof halves);
  } else {
    std::memcpy(to, &halves, static_cast<std::size_t>(lanes) * sizeof(Bf16));
  }
}

#include "backend/cpu/tiles/lane_masks.inc"

constexpr int kMaxRows = 5;  // two registers each, of 16, and more for what is multiplied

namespace few_channel {
#include "backend/cpu/tiles/few_channel_loops.inc"
}  // namespace few_channel

namespace patches {
#include "backend/cpu/tiles/patch_loops.inc"
}  // namespace patches

}  // namespace
}  // namespace avx2

template <class T>
const FewChannelKernels<T>& few_channel_kernels_avx2() {
  return avx2::few_channel::kKernels<T>;
}
template const FewChannelKernels<float>& few_channel_kernels_avx2();
template const FewChannelKernels<Bf16>& few_channel_kernels_avx2();

template <class T>
const PatchKernels<T>& patch_kernels_avx2() {
  return avx2::patches::kKernels<T>;
}
template const PatchKernels<float>& patch_kernels_avx2();
template const PatchKernels<Bf16>& patch_kernels_avx2();

}  // namespace tutti::cpu
