// Compiled for AVX-512.
#include "backend/cpu/x86/kernels.hpp"

#include <immintrin.h>

#include <cstring>

namespace tutti::cpu {
namespace avx512 {
namespace {

#include "backend/cpu/x86/registers_avx512.inc"

constexpr int kMaxRows = 14;  // two registers each, of 32, and more for what is multiplied

#include "backend/cpu/tiles/tile_kinds.inc"

}  // namespace
}  // namespace avx512

template <class T>
const TileKernels<T>& wide_tiles_avx512() {
  return avx512::wide::kTileKernels<T>;
}
template const TileKernels<float>& wide_tiles_avx512();
template const TileKernels<Bf16>& wide_tiles_avx512();

const TileKernels<Bf16>& narrow_tiles_avx512() { return avx512::narrow_ones::kTileKernels<Bf16>; }

}  // namespace tutti::cpu
