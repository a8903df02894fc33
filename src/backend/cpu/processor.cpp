#include "backend/cpu/processor.hpp"

#include "tutti/base/denormals.hpp"
#include "tutti/base/error.hpp"

#include <fmt/format.h>
#include <omp.h>

#include <latch>
#include <system_error>
#include <thread>
#include <vector>

namespace tutti::cpu {
namespace {

// libgomp ends the process with status 1 if it cannot start a thread. So this starts the same number before it, and
// reports an error.
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

}  // namespace

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
