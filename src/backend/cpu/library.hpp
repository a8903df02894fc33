#pragma once
// The library under this backend: its name and version, what it compiles for, and how its threads are set.

#include "tutti/backend/precision.hpp"

#include <dnnl.hpp>

#include <string>

namespace tutti::cpu {

std::string library_version();  // "oneDNN 2.6.3"
std::string instruction_set();  // "AVX-512 with bf16"
// Whether the library compiles for these instructions, on this processor and within the limit it may have been set.
bool compiles_for(dnnl::cpu_isa instructions);
// Of loops compiled by instruction_sets.inc, the widest that it does so for.
template <class Kernels>
const Kernels& for_this_processor(const Kernels& avx512, const Kernels& avx2, const Kernels& generic) {
  if (compiles_for(dnnl::cpu_isa::avx512_core)) return avx512;
  return compiles_for(dnnl::cpu_isa::avx2) ? avx2 : generic;
}
// The type in which layers compute. Throws a usage error where this processor cannot.
dnnl::memory::data_type compute_type(Precision precision);
std::string threading_library();  // "OpenMP"

// For the calling thread: how many threads the library's primitives use, made or run from it, and how it
// treats denormal numbers.
void set_thread_environment(int threads);

}  // namespace tutti::cpu
