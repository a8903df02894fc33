// Compiled for AVX-512 with its products of bf16.
#include "backend/cpu/x86/kernels.hpp"

#include <immintrin.h>

#include <cstring>

namespace tutti::cpu {
namespace avx512_bf16 {
namespace {

#include "backend/cpu/x86/registers_avx512.inc"

constexpr int kMaxRows = 14;  // two registers each, of 32, and more for what is multiplied
constexpr int kTileDown = 4;
constexpr int kTileAcross = 2;
constexpr bool kRounds = true;
constexpr bool kPairs = true;

inline Floats product(const Floats& a, const Floats& b, const Floats& c) {
  return reinterpret_cast<Floats>(
      _mm512_dpbf16_ps(reinterpret_cast<__m512>(c), reinterpret_cast<__m512bh>(a), reinterpret_cast<__m512bh>(b)));
}
inline Halves narrow(const Floats& v) {
  return reinterpret_cast<Halves>(_mm512_cvtneps_pbh(reinterpret_cast<__m512>(v)));
}

#include "backend/cpu/tiles/tile_loops.inc"

}  // namespace
}  // namespace avx512_bf16

const TileKernels<Bf16>& narrow_tiles_avx512_bf16() { return avx512_bf16::kTileKernels<Bf16>; }

}  // namespace tutti::cpu
