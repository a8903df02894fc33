#pragma once
// The way forward of a convolution by tiles, and the way back to its input, which is a convolution with turned windows.

#include "backend/cpu/stream.hpp"
#include "backend/cpu/tiles/tile_side.hpp"

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

}  // namespace tutti::cpu
