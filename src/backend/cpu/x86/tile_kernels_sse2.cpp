// Compiled for any x86-64 processor.
#include "backend/cpu/x86/kernels.hpp"

#include <emmintrin.h>

#include <cstring>

namespace tutti::cpu {
namespace sse2 {
namespace {

#include "backend/cpu/x86/registers_sse2.inc"

constexpr int kMaxRows = 6;

#include "backend/cpu/tiles/tile_kinds.inc"

}  // namespace
}  // namespace sse2

template <class T>
const TileKernels<T>& wide_tiles_sse2() {
  return sse2::wide::kTileKernels<T>;
}
template const TileKernels<float>& wide_tiles_sse2();
template const TileKernels<Bf16>& wide_tiles_sse2();

const TileKernels<Bf16>& narrow_tiles_sse2() { return sse2::narrow_ones::kTileKernels<Bf16>; }

}  // namespace tutti::cpu
