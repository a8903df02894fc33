// The kernels for this processor.
#include "backend/cpu/x86/kernels.hpp"

#include "backend/cpu/x86/instructions.hpp"

namespace tutti::cpu {

template <class T>
const TileKernels<T>& wide_tiles() {
  return has(Instructions::avx512) ? wide_tiles_avx512<T>() : wide_tiles_avx2<T>();
}
template const TileKernels<float>& wide_tiles();
template const TileKernels<Bf16>& wide_tiles();

const TileKernels<Bf16>& narrow_tiles() {
  if (has(Instructions::avx512_bf16)) return narrow_tiles_avx512_bf16();
  return has(Instructions::avx512) ? narrow_tiles_avx512() : narrow_tiles_avx2();
}

template <class T>
const PatchKernels<T>& patch_kernels() {
  return has(Instructions::avx512) ? patch_kernels_avx512<T>() : patch_kernels_avx2<T>();
}
template const PatchKernels<float>& patch_kernels();
template const PatchKernels<Bf16>& patch_kernels();

template <class T>
const FewChannelKernels<T>& few_channel_kernels() {
  return has(Instructions::avx512) ? few_channel_kernels_avx512<T>() : few_channel_kernels_avx2<T>();
}
template const FewChannelKernels<float>& few_channel_kernels();
template const FewChannelKernels<Bf16>& few_channel_kernels();

template <class T>
const GroupedKernels<T>& grouped_kernels() {
  return compiles_for(dnnl::cpu_isa::avx512_core) ? grouped_kernels_avx512<T>() : grouped_kernels_avx2<T>();
}
template const GroupedKernels<float>& grouped_kernels();
template const GroupedKernels<Bf16>& grouped_kernels();

}  // namespace tutti::cpu
