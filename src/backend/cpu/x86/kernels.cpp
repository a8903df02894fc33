// The kernels for this processor.
#include "backend/cpu/x86/kernels.hpp"

#include "backend/cpu/x86/instructions.hpp"

namespace tutti::cpu {
namespace {

template <class Kernels>
const Kernels& widest(const Kernels& (*avx512)(), const Kernels& (*avx2)(), const Kernels& (*sse2)()) {
  return has(Instructions::avx512) ? avx512() : has(Instructions::avx2) ? avx2() : sse2();
}

}  // namespace

template <class T>
const TileKernels<T>& wide_tiles() {
  return widest(wide_tiles_avx512<T>, wide_tiles_avx2<T>, wide_tiles_sse2<T>);
}
template const TileKernels<float>& wide_tiles();
template const TileKernels<Bf16>& wide_tiles();

const TileKernels<Bf16>& narrow_tiles() {
  if (has(Instructions::avx512_bf16)) return narrow_tiles_avx512_bf16();
  return widest(narrow_tiles_avx512, narrow_tiles_avx2, narrow_tiles_sse2);
}

template <class T>
const LaneKernels<T>& lane_kernels() {
  return widest(lane_kernels_avx512<T>, lane_kernels_avx2<T>, lane_kernels_sse2<T>);
}
template const LaneKernels<float>& lane_kernels();
template const LaneKernels<Bf16>& lane_kernels();

}  // namespace tutti::cpu
