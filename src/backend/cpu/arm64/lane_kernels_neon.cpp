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
const FewChannelKernels<T>& few_channel_kernels() {
  return neon::few_channel::kKernels<T>;
}
template const FewChannelKernels<float>& few_channel_kernels();
template const FewChannelKernels<Bf16>& few_channel_kernels();

template <class T>
const GroupedKernels<T>& grouped_kernels() {
  return neon::grouped::kKernels<T>;
}
template const GroupedKernels<float>& grouped_kernels();
template const GroupedKernels<Bf16>& grouped_kernels();

template <class T>
const PatchKernels<T>& patch_kernels() {
  return neon::patches::kKernels<T>;
}
template const PatchKernels<float>& patch_kernels();
template const PatchKernels<Bf16>& patch_kernels();

}  // namespace tutti::cpu
