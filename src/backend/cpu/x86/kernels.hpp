#pragma once
// The kernels of convolutions for each instruction set.

#include "backend/cpu/tiles/lane_kernels.hpp"
#include "backend/cpu/tiles/tile_kernels.hpp"

namespace tutti::cpu {

template <class T>
const TileKernels<T>& wide_tiles_avx512();
template <class T>
const TileKernels<T>& wide_tiles_avx2();
template <class T>
const TileKernels<T>& wide_tiles_sse2();
const TileKernels<Bf16>& narrow_tiles_avx512_bf16();
const TileKernels<Bf16>& narrow_tiles_avx512();
const TileKernels<Bf16>& narrow_tiles_avx2();
const TileKernels<Bf16>& narrow_tiles_sse2();

template <class T>
const LaneKernels<T>& lane_kernels_avx512();
template <class T>
const LaneKernels<T>& lane_kernels_avx2();
template <class T>
const LaneKernels<T>& lane_kernels_sse2();

}  // namespace tutti::cpu
