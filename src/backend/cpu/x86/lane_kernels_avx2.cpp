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
const FewChannelKernels<T>& few_channel_kernels_avx2() {
  return avx2::few_channel::kKernels<T>;
}
template const FewChannelKernels<float>& few_channel_kernels_avx2();
template const FewChannelKernels<Bf16>& few_channel_kernels_avx2();

template <class T>
const GroupedKernels<T>& grouped_kernels_avx2() {
  return avx2::grouped::kKernels<T>;
}
template const GroupedKernels<float>& grouped_kernels_avx2();
template const GroupedKernels<Bf16>& grouped_kernels_avx2();

template <class T>
const PatchKernels<T>& patch_kernels_avx2() {
  return avx2::patches::kKernels<T>;
}
template const PatchKernels<float>& patch_kernels_avx2();
template const PatchKernels<Bf16>& patch_kernels_avx2();

}  // namespace tutti::cpu
