// Compiled for AVX-512, and with a * b + c contracted.
#include "backend/cpu/tiles/tile_kernels.hpp"

#include <cstring>

namespace tutti::cpu {
namespace avx512 {
namespace {

constexpr int kWidth = 16;
constexpr int kTileDown = 4;
constexpr int kTileAcross = 4;
constexpr bool kPairs = false;
constexpr int kMaxRows = 14;  // two registers each, of 32, beside what is multiplied

#include "backend/cpu/tiles/simd_types.inc"

inline Floats product(const Floats& a, const Floats& b, const Floats& c) { return a * b + c; }
inline Halves narrow(const Floats& v) { return narrow_by_bits(v); }

#include "backend/cpu/tiles/tile_loops.inc"

}  // namespace
}  // namespace avx512

template <class T>
const TileKernels<T>& wide_tiles_avx512() {
  return avx512::kTileKernels<T>;
}
template const TileKernels<float>& wide_tiles_avx512();
template const TileKernels<Bf16>& wide_tiles_avx512();

}  // namespace tutti::cpu
