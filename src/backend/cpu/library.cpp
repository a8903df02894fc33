#include "backend/cpu/library.hpp"

#include "tutti/base/denormals.hpp"
#include "tutti/base/error.hpp"

#include <dnnl.hpp>
#include <fmt/format.h>
#include <omp.h>

#include <latch>
#include <system_error>
#include <thread>
#include <vector>

namespace tutti::cpu {

std::string library_version() {
  const dnnl::version_t& version = *dnnl::version();
  return fmt::format("oneDNN {}.{}.{}", version.major, version.minor, version.patch);
}

// dnnl::cpu_isa values are bit sets; each contains its predecessors.
bool compiles_for(dnnl::cpu_isa instructions) {
  const auto wanted = static_cast<unsigned>(instructions);
  return (static_cast<unsigned>(dnnl::get_effective_cpu_isa()) & wanted) == wanted;
}

dnnl::memory::data_type compute_type(Precision precision) {
  if (precision == Precision::fp32) return dnnl::memory::data_type::f32;
  if (precision == Precision::tf32) {
    throw Error(ErrorSource::usage, "--precision tf32 needs GPUs, and this run is on CPUs: give fp32 or bf16");
  }
  return dnnl::memory::data_type::bf16;
}

std::string threading_library() {
  switch (dnnl::version()->cpu_runtime) {
    case DNNL_RUNTIME_SEQ:
      return "one thread";
    case DNNL_RUNTIME_OMP:
      return "OpenMP";
    case DNNL_RUNTIME_TBB:
      return "TBB";
    default:
      return "threads of its own";
  }
}

// libgomp ends the process with status 1 if it cannot start a thread. Starting as many here first gives an error that
// can be reported.
void require_startable(int threads) {
  std::latch all_started(1);
  std::vector<std::jthread> others;
  try {
    for (int i = 1; i < threads; ++i) others.emplace_back([&] { all_started.wait(); });
  } catch (const std::system_error& error) {
    all_started.count_down();
    throw Error(
        ErrorSource::input,
        fmt::format("cannot start {} threads, only {}: {}; lower --threads, or raise the limits of memory and of "
                    "processes (ulimit -v, ulimit -u)",
                    threads, others.size() + 1, error.code().message()));
  }
  all_started.count_down();
}

void set_thread_environment(int threads) {
  if (threads < 1) {
    throw Error(ErrorSource::usage, fmt::format("a compute thread needs at least 1 thread, not {}", threads));
  }
  require_startable(threads);
  omp_set_dynamic(0);
  omp_set_num_threads(threads);
  // A library built with -ffast-math may have changed this for the thread that loaded it and for those that it started.
  set_denormal_mode(0);
}

}  // namespace tutti::cpu
