#pragma once
// oneDNN, the library under this backend: its name and version, the instructions it compiles for, how its threads are
// set, and how its errors are reported.

#include "tutti/backend/precision.hpp"
#include "tutti/base/error.hpp"

#include <dnnl.hpp>
#include <dnnl_debug.h>
#include <fmt/format.h>

#include <source_location>
#include <string>
#include <utility>

namespace tutti::cpu {

std::string library_version();  // "oneDNN 2.6.3"
std::string instruction_set();  // "AVX-512 with bf16"
// Whether the library compiles for these instructions on this processor, given its limit (ONEDNN_MAX_CPU_ISA).
bool compiles_for(dnnl::cpu_isa instructions);
// Of the loops compiled by instruction_sets.inc, the widest for which it does.
template <class Kernels>
const Kernels& for_this_processor(const Kernels& avx512, const Kernels& avx2, const Kernels& generic) {
  if (compiles_for(dnnl::cpu_isa::avx512_core)) return avx512;
  return compiles_for(dnnl::cpu_isa::avx2) ? avx2 : generic;
}
// The type in which layers compute. Throws a usage error where this processor cannot.
dnnl::memory::data_type compute_type(Precision precision);
std::string threading_library();  // "OpenMP"

// Sets, for the calling thread, how many threads the library's primitives use that it makes or runs, and how it treats
// denormal numbers.
void set_thread_environment(int threads);

// Turns oneDNN's exceptions into ours. Its C++ interface throws for every bad status, so that making a call inside
// check() checks it.
[[noreturn]] inline void raise(const dnnl::error& error, const std::string& doing, std::source_location where) {
  throw Error(ErrorSource::onednn, fmt::format("{}: {} ({})", doing, error.message, dnnl_status2str(error.status)),
              where);
}

// `doing` completes the message, as in "making conv2d on 64x1x28x28". It is a callable, so that it costs nothing
// without an error.
template <class Doing, class Call>
auto check(Doing&& doing, Call&& call, std::source_location where = std::source_location::current()) {
  try {
    return std::forward<Call>(call)();
  } catch (const dnnl::error& error) {
    raise(error, doing(), where);
  }
}

// What all layers of one backend compute with.
struct Processor {
  dnnl::engine engine;
  dnnl::memory::data_type type = dnnl::memory::data_type::f32;  // of activations and weights inside the layers
  bool tiles = true;                                            // convolutions may use our own loops
};

}  // namespace tutti::cpu
