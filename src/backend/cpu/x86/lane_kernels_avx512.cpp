// Compiled for AVX-512.
#include "backend/cpu/x86/kernels.hpp"

#include <immintrin.h>

#include <cstring>

namespace tutti::cpu {
namespace avx512 {
namespace {

#include "backend/cpu/x86/registers_avx512.inc"

using Mask = __mmask16;
inline Mask first_lanes(std::int64_t count) { return static_cast<Mask>((1u << count) - 1); }

inline void store(float* to, const Floats& v) { _mm512_storeu_ps(to, reinterpret_cast<__m512>(v)); }
inline Floats load(const float* from, Mask lanes) {
  return reinterpret_cast<Floats>(_mm512_maskz_loadu_ps(lanes, from));
}
inline Floats load(const Bf16* from, Mask lanes) {
  const __m512i words = _mm512_maskz_cvtepu16_epi32(lanes, _mm256_maskz_loadu_epi16(lanes, from));
  return bits_of<Floats>(reinterpret_cast<Words>(words) << 16);
}
inline void store(float* to, const Floats& v, Mask lanes) {
  _mm512_mask_storeu_ps(to, lanes, reinterpret_cast<__m512>(v));
}
inline void store(Bf16* to, const Floats& v, Mask lanes) {
  _mm256_mask_storeu_epi16(to, lanes, reinterpret_cast<__m256i>(narrow_by_bits(v)));
}

constexpr int kMaxRows = 13;  // two registers each, of 32, and more for what is multiplied

#include "backend/cpu/tiles/lane_loops.inc"

}  // namespace
}  // namespace avx512

template <class T>
const LaneKernels<T>& lane_kernels_avx512() {
  return avx512::kLaneKernels<T>;
}
template const LaneKernels<float>& lane_kernels_avx512();
template const LaneKernels<Bf16>& lane_kernels_avx512();

}  // namespace tutti::cpu
