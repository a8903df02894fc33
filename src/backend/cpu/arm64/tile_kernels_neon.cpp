#include "backend/cpu/library.hpp"
#include "backend/cpu/tiles/tile_kernels.hpp"

#include <arm_neon.h>

#include <cstring>

namespace tutti::cpu {
namespace neon {
namespace {

#include "backend/cpu/arm64/registers_neon.inc"

constexpr int kMaxRows = 12;  // two registers each, of 32, and more for what is multiplied
constexpr int kTileDown = 4;
constexpr bool kPairs = false;

inline Floats product(const Floats& a, const Floats& b, const Floats& c) { return fused(a, b, c); }

namespace wide {
constexpr int kTileAcross = 4;
constexpr bool kRounds = false;
inline Halves narrow(const Floats& v) { return narrow_by_bits(v); }
#include "backend/cpu/tiles/tile_loops.inc"
}  // namespace wide

namespace narrow_ones {
constexpr int kTileAcross = 2;
constexpr bool kRounds = true;
inline Halves narrow(const Floats& v) { return narrow_normal_by_bits(v); }
#include "backend/cpu/tiles/tile_loops.inc"
}  // namespace narrow_ones

}  // namespace
}  // namespace neon

std::string instruction_set() { return "NEON"; }
bool has_tiled_passes() { return true; }

template <class T>
const TileKernels<T>& wide_tiles() {
  return neon::wide::kTileKernels<T>;
}
template const TileKernels<float>& wide_tiles();
template const TileKernels<Bf16>& wide_tiles();

const TileKernels<Bf16>& narrow_tiles() { return neon::narrow_ones::kTileKernels<Bf16>; }

}  // namespace tutti::cpu
