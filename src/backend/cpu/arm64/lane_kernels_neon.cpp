#include "backend/cpu/tiles/lane_kernels.hpp"

#include <arm_neon.h>

#include <cstring>

namespace tutti::cpu {
namespace neon {
namespace {

#include "backend/cpu/arm64/registers_neon.inc"

constexpr int kMaxRows = 13;  // two registers each, of 32, and more for what is multiplied

#include "backend/cpu/tiles/lane_counts.inc"
#include "backend/cpu/tiles/lane_loops.inc"

}  // namespace
}  // namespace neon

template <class T>
const LaneKernels<T>& lane_kernels() {
  return neon::kLaneKernels<T>;
}
template const LaneKernels<float>& lane_kernels();
template const LaneKernels<Bf16>& lane_kernels();

}  // namespace tutti::cpu
