// The instruction set of this processor within oneDNN's limit, and our own kernels for it.
#include "backend/cpu/x86/kernels.hpp"

#include "backend/cpu/library.hpp"

#include <utility>

namespace tutti::cpu {

// The widest instruction set that all versions of oneDNN know.
std::string instruction_set() {
  using Isa = dnnl::cpu_isa;
  for (const auto& [isa, name] :
       {std::pair(Isa::avx512_core_amx, "AVX-512 with AMX"), std::pair(Isa::avx512_core_bf16, "AVX-512 with bf16"),
        std::pair(Isa::avx512_core_vnni, "AVX-512 with VNNI"), std::pair(Isa::avx512_core, "AVX-512"),
        std::pair(Isa::avx2_vnni, "AVX2 with VNNI"), std::pair(Isa::avx2, "AVX2"), std::pair(Isa::avx, "AVX"),
        std::pair(Isa::sse41, "SSE4.1")}) {
    if (compiles_for(isa)) return name;
  }
  return "generic instructions";
}

template <class T>
const TileKernels<T>& wide_tiles() {
  if (compiles_for(dnnl::cpu_isa::avx512_core)) return wide_tiles_avx512<T>();
  return compiles_for(dnnl::cpu_isa::avx2) ? wide_tiles_avx2<T>() : wide_tiles_sse2<T>();
}
template const TileKernels<float>& wide_tiles();
template const TileKernels<Bf16>& wide_tiles();

const TileKernels<Bf16>& narrow_tiles() {
  if (compiles_for(dnnl::cpu_isa::avx512_core_bf16)) return narrow_tiles_avx512_bf16();
  if (compiles_for(dnnl::cpu_isa::avx512_core)) return narrow_tiles_avx512();
  return compiles_for(dnnl::cpu_isa::avx2) ? narrow_tiles_avx2() : narrow_tiles_sse2();
}

template <class T>
const PatchKernels<T>& patch_kernels() {
  if (compiles_for(dnnl::cpu_isa::avx512_core)) return patch_kernels_avx512<T>();
  return compiles_for(dnnl::cpu_isa::avx2) ? patch_kernels_avx2<T>() : patch_kernels_sse2<T>();
}
template const PatchKernels<float>& patch_kernels();
template const PatchKernels<Bf16>& patch_kernels();

template <class T>
const FewChannelKernels<T>& few_channel_kernels() {
  if (compiles_for(dnnl::cpu_isa::avx512_core)) return few_channel_kernels_avx512<T>();
  return compiles_for(dnnl::cpu_isa::avx2) ? few_channel_kernels_avx2<T>() : few_channel_kernels_sse2<T>();
}
template const FewChannelKernels<float>& few_channel_kernels();
template const FewChannelKernels<Bf16>& few_channel_kernels();

}  // namespace tutti::cpu
