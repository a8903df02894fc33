// Compiled for any x86-64 processor.
#include "backend/cpu/x86/kernels.hpp"

#include <emmintrin.h>

#include <cstring>

namespace tutti::cpu {
namespace sse2 {
namespace {

#include "backend/cpu/x86/registers_sse2.inc"

constexpr int kMaxRows = 5;

#include "backend/cpu/tiles/lane_counts.inc"
#include "backend/cpu/tiles/lane_loops.inc"

}  // namespace
}  // namespace sse2

template <class T>
const LaneKernels<T>& lane_kernels_sse2() {
  return sse2::kLaneKernels<T>;
}
template const LaneKernels<float>& lane_kernels_sse2();
template const LaneKernels<Bf16>& lane_kernels_sse2();

}  // namespace tutti::cpu
