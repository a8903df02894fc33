#pragma once
// oneDNN: its name and version, the instruction sets that it uses, its threads, and its errors.

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
// Whether oneDNN uses these instructions on this processor, given its limit (ONEDNN_MAX_CPU_ISA). Never on ARM.
bool compiles_for(dnnl::cpu_isa instructions);
// The type in which layers compute. Throws a usage error if CPUs do not support it.
dnnl::memory::data_type compute_type(Precision precision);
std::string threading_library();  // "OpenMP"

// Sets the number of OpenMP threads for primitives that the calling thread makes or runs, and turns off flushing of
// denormal numbers.
void set_thread_environment(int threads);

// Turns oneDNN's exceptions into ours. Its C++ interface throws on every error status, so a call inside check() is
// checked. `doing` completes the message, as in "making conv2d on 64x1x28x28". It is a callable, so that the text is
// formatted only on errors.
template <class Doing, class Call>
auto check(Doing&& doing, Call&& call, std::source_location where = std::source_location::current()) {
  try {
    return std::forward<Call>(call)();
  } catch (const dnnl::error& error) {
    throw Error(ErrorSource::onednn, fmt::format("{}: {} ({})", doing(), error.message, dnnl_status2str(error.status)),
                where);
  }
}

// The engine and types that all layers of one backend use.
struct Processor {
  dnnl::engine engine;
  dnnl::memory::data_type type = dnnl::memory::data_type::f32;  // of activations and weights inside the layers
  bool tiles = true;                                            // convolutions may use our own loops
};

}  // namespace tutti::cpu
