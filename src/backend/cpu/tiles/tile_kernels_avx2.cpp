// Compiled for AVX2, and with a * b + c contracted.
#include "backend/cpu/tiles/tile_kernels.hpp"

#include <cstring>

namespace tutti::cpu {
namespace avx2 {
namespace {

constexpr int kWidth = 8;
constexpr int kTileDown = 4;
constexpr int kTileAcross = 4;
constexpr bool kPairs = false;
constexpr int kMaxRows = 6;  // two registers each, of 16, beside what is multiplied

#include "backend/cpu/tiles/simd_types.inc"

inline Floats product(const Floats& a, const Floats& b, const Floats& c) { return a * b + c; }
inline Halves narrow(const Floats& v) { return narrow_by_bits(v); }

#include "backend/cpu/tiles/tile_loops.inc"

}  // namespace
}  // namespace avx2

template <class T>
const TileKernels<T>& wide_tiles_avx2() {
  return avx2::kTileKernels<T>;
}
template const TileKernels<float>& wide_tiles_avx2();

}  // namespace tutti::cpu
