// The instructions of this processor, and the kernels for them.
#include "backend/cpu/x86/kernels.hpp"

#include "tutti/base/error.hpp"

#include "backend/cpu/processor.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <string_view>
#include <utility>

namespace tutti::cpu {
namespace {

// Those for which there are kernels; each contains those before it.
enum class Instructions { sse2, avx2, avx512, avx512_bf16 };

Instructions of_processor() {
  __builtin_cpu_init();
  if (!__builtin_cpu_supports("avx2") || !__builtin_cpu_supports("fma")) return Instructions::sse2;
  const bool avx512 = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                      __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
  if (!avx512) return Instructions::avx2;
  return __builtin_cpu_supports("avx512bf16") ? Instructions::avx512_bf16 : Instructions::avx512;
}

// Intel's processors take twice as long for a product of pairs of bf16 as for two fused multiply-adds (Emerald Rapids).
Instructions fastest() { return __builtin_cpu_is("intel") ? Instructions::avx512 : Instructions::avx512_bf16; }

Instructions limit() {
  const char* const value = std::getenv("TUTTI_MAX_CPU_ISA");
  if (value == nullptr) return fastest();
  for (const auto& [name, instructions] :
       {std::pair("SSE2", Instructions::sse2), std::pair("AVX2", Instructions::avx2),
        std::pair("AVX512", Instructions::avx512), std::pair("AVX512_BF16", Instructions::avx512_bf16)}) {
    if (std::string_view(value) == name) return instructions;
  }
  throw Error(ErrorSource::usage,
              fmt::format("TUTTI_MAX_CPU_ISA is '{}' in the environment: set it to SSE2, AVX2, AVX512 or AVX512_BF16, "
                          "or unset it",
                          value));
}

// The last ones that this processor and TUTTI_MAX_CPU_ISA allow. All give the same bits.
Instructions instructions() {
  static const Instructions widest = std::min(of_processor(), limit());
  return widest;
}

bool has(Instructions wanted) { return instructions() >= wanted; }

template <class Kernels>
const Kernels& widest(const Kernels& (*avx512)(), const Kernels& (*avx2)(), const Kernels& (*sse2)()) {
  return has(Instructions::avx512) ? avx512() : has(Instructions::avx2) ? avx2() : sse2();
}

}  // namespace

std::string instruction_set() {
  switch (instructions()) {
    case Instructions::sse2:
      return "SSE2";
    case Instructions::avx2:
      return "AVX2";
    case Instructions::avx512:
      return "AVX-512";
    case Instructions::avx512_bf16:
      return "AVX-512 with bf16";
  }
  return {};
}

int register_width() { return has(Instructions::avx512) ? 16 : has(Instructions::avx2) ? 8 : 4; }

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
const LaneKernels<T>& lane_kernels() {
  return widest(lane_kernels_avx512<T>, lane_kernels_avx2<T>, lane_kernels_sse2<T>);
}
template const LaneKernels<float>& lane_kernels();
template const LaneKernels<Bf16>& lane_kernels();

}  // namespace tutti::cpu
