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
const FewChannelKernels<T>& few_channel_kernels_sse2() {
  return sse2::few_channel::kKernels<T>;
}
template const FewChannelKernels<float>& few_channel_kernels_sse2();
template const FewChannelKernels<Bf16>& few_channel_kernels_sse2();

template <class T>
const PatchKernels<T>& patch_kernels_sse2() {
  return sse2::patches::kKernels<T>;
}
template const PatchKernels<float>& patch_kernels_sse2();
template const PatchKernels<Bf16>& patch_kernels_sse2();

template <class T>
const GroupedKernels<T>& grouped_kernels_sse2() {
  return sse2::grouped::kKernels<T>;
}
template const GroupedKernels<float>& grouped_kernels_sse2();
template const GroupedKernels<Bf16>& grouped_kernels_sse2();

}  // namespace tutti::cpu
