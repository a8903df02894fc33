#pragma once
// The instructions of the processor.

#include <string>

namespace tutti::cpu {

// What our kernels use of this processor: "AVX-512 with bf16". On x86, TUTTI_MAX_CPU_ISA limits it; throws a usage
// error if that is set to something else.
std::string instruction_set();
int register_width();  // of the registers that they use, in floats

}  // namespace tutti::cpu
