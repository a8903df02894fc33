// Compiled for AVX2.
#include "backend/cpu/x86/kernels.hpp"

#include <immintrin.h>

#include <cstring>

namespace tutti::cpu {
namespace avx2 {
namespace {

#include "backend/cpu/x86/registers_avx2.inc"

constexpr int kMaxRows = 5;  // two registers each, of 16, and more for what is multiplied

#include "backend/cpu/tiles/lane_counts.inc"
#include "backend/cpu/tiles/lane_loops.inc"

}  // namespace
}  // namespace avx2

template <class T>
const LaneKernels<T>& lane_kernels_avx2() {
  return avx2::kLaneKernels<T>;
}
template const LaneKernels<float>& lane_kernels_avx2();
template const LaneKernels<Bf16>& lane_kernels_avx2();

}  // namespace tutti::cpu
