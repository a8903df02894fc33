#include "tutti/app/program.hpp"
#include "tutti/base/process.hpp"

#include "streams_and_signals.hpp"

#include <sys/auxv.h>
#include <unistd.h>

#include <array>
#include <climits>
#include <cstdlib>

namespace {

// The threads of a part wait for each other in every layer. By default, waiting threads of GNU OpenMP spin for
// milliseconds, which on a busy machine keeps other threads off the cores: steps took 5 times as long or more. 1,000
// iterations, about ten microseconds, cost nothing on an idle machine and little on a busy one. The library reads its
// environment variables when it is loaded, before main. So the program executes itself again, in the same process.
void reexec_with_short_openmp_spin(char** argv) {
  if (std::getenv("OMP_WAIT_POLICY") != nullptr || std::getenv("GOMP_SPINCOUNT") != nullptr) return;
  const bool is_executed = getauxval(AT_BASE) != 0;  // else ld.so was called with the program as its argument
  if (!is_executed || tutti::allowed_cores().size() == 1) return;
  std::array<char, PATH_MAX> path{};
  if (readlink("/proc/self/exe", path.data(), path.size() - 1) <= 0) return;
  if (setenv("GOMP_SPINCOUNT", "1000", 0) == 0) execv(path.data(), argv);
}

}  // namespace

int main(int argc, char** argv) {
  tutti::block_stop_signals();  // stay blocked across execv
  reexec_with_short_openmp_spin(argv);
  return tutti::run_program(argc, argv);
}
