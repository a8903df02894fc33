#pragma once
// The gradient of the windows of a convolution by tiles: at each point, the product of the output gradients' points by
// the inputs', summed over tiles.

#include "backend/cpu/stream.hpp"
#include "backend/cpu/tiles/tile_side.hpp"

namespace tutti::cpu {

template <class T>
struct TileComparison {
  TileSide input;
  const T* inputs;
  TileSide output;
  const T* gradients;
  std::int64_t images, padding;
  float* window_gradients;
};

template <class T>
void compare(const TileKernels<T>& kernels, CpuStream& stream, const TileComparison<T>& what);

}  // namespace tutti::cpu
