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

bool has_tiled_passes() { return compiles_for(dnnl::cpu_isa::avx2); }

template <class T>
const TileKernels<T>& wide_tiles() {
  return compiles_for(dnnl::cpu_isa::avx512_core) ? wide_tiles_avx512<T>() : wide_tiles_avx2<T>();
}
template const TileKernels<float>& wide_tiles();
template const TileKernels<Bf16>& wide_tiles();

const TileKernels<Bf16>& narrow_tiles() {
  if (compiles_for(dnnl::cpu_isa::avx512_core_bf16)) return narrow_tiles_avx512_bf16();
  return compiles_for(dnnl::cpu_isa::avx512_core) ? narrow_tiles_avx512() : narrow_tiles_avx2();
}

template <class T>
const PatchKernels<T>& patch_kernels() {
  return compiles_for(dnnl::cpu_isa::avx512_core) ? patch_kernels_avx512<T>() : patch_kernels_avx2<T>();
}
template const PatchKernels<float>& patch_kernels();
template const PatchKernels<Bf16>& patch_kernels();

template <class T>
const FewChannelKernels<T>& few_channel_kernels() {
  return compiles_for(dnnl::cpu_isa::avx512_core) ? few_channel_kernels_avx512<T>() : few_channel_kernels_avx2<T>();
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
