#include "tutti/base/denormals.hpp"

#include "backend/cpu/processor.hpp"
#include "backend/cpu/tiles/tile_kernels.hpp"

#include <arm_neon.h>

#include <cmath>
#include <cstring>

namespace tutti::cpu {
namespace neon {
namespace {

#include "backend/cpu/arm64/registers_neon.inc"

constexpr int kMaxRows = 12;  // two registers each, of 32, and more for what is multiplied

#include "backend/cpu/arm64/flushed_products.inc"

}  // namespace
}  // namespace neon

std::string instruction_set() { return "NEON"; }
int register_width() { return neon::kWidth; }

template <class T>
const TileKernels<T>& wide_tiles() {
  return neon::wide::kTileKernels<T>;
}
template const TileKernels<float>& wide_tiles();
template const TileKernels<Bf16>& wide_tiles();

const TileKernels<Bf16>& narrow_tiles() { return neon::kCheckedTiles; }

}  // namespace tutti::cpu
