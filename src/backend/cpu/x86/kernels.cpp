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
const PatchKernels<T>& patch_kernels() {
  return widest(patch_kernels_avx512<T>, patch_kernels_avx2<T>, patch_kernels_sse2<T>);
}
template const PatchKernels<float>& patch_kernels();
template const PatchKernels<Bf16>& patch_kernels();

template <class T>
const FewChannelKernels<T>& few_channel_kernels() {
  return widest(few_channel_kernels_avx512<T>, few_channel_kernels_avx2<T>, few_channel_kernels_sse2<T>);
}
template const FewChannelKernels<float>& few_channel_kernels();
template const FewChannelKernels<Bf16>& few_channel_kernels();

template <class T>
const GroupedKernels<T>& grouped_kernels() {
  return widest(grouped_kernels_avx512<T>, grouped_kernels_avx2<T>, grouped_kernels_sse2<T>);
}
template const GroupedKernels<float>& grouped_kernels();
template const GroupedKernels<Bf16>& grouped_kernels();

}  // namespace tutti::cpu
