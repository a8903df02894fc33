#pragma once
// The instruction sets for which there are kernels; each contains those before it.

namespace tutti::cpu {

enum class Instructions { sse2, avx2, avx512, avx512_bf16 };

// The last one that this processor and TUTTI_MAX_CPU_ISA allow. All give the same bits.
Instructions instructions();

inline bool has(Instructions wanted) { return instructions() >= wanted; }

}  // namespace tutti::cpu
