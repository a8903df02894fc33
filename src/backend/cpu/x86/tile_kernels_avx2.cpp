// Compiled for AVX2.
#include "backend/cpu/x86/kernels.hpp"

#include <immintrin.h>

#include <cstring>

namespace tutti::cpu {
namespace avx2 {
namespace {

#include "backend/cpu/x86/registers_avx2.inc"

constexpr int kMaxRows = 6;  // two registers each, of 16, and more for what is multiplied

#include "backend/cpu/tiles/tile_kinds.inc"

}  // namespace
}  // namespace avx2

template <class T>
const TileKernels<T>& wide_tiles_avx2() {
  return avx2::wide::kTileKernels<T>;
}
template const TileKernels<float>& wide_tiles_avx2();
template const TileKernels<Bf16>& wide_tiles_avx2();

const TileKernels<Bf16>& narrow_tiles_avx2() { return avx2::narrow_ones::kTileKernels<Bf16>; }

}  // namespace tutti::cpu
