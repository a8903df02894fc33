#pragma once
// The way forward of a convolution by tiles, and the way back to its input, which is a convolution with turned windows.

#include "backend/cpu/stream.hpp"
#include "backend/cpu/tiles/tile_work.hpp"

namespace tutti::cpu {

template <class T>
struct TileConvolution {
  TileSide from;
  const T* values;
  TileSide to;
  T* results;
  std::int64_t images, padding;
  const float* windows;
  bool turned;
  const float* bias;
  bool relu;
};

template <class T>
void convolve(const TileKernels<T>& kernels, CpuStream& stream, const TileConvolution<T>& what);

// The gradient of the windows of a convolution by tiles: at each point, the product of the output gradients' points by
// the inputs', summed over tiles.
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
