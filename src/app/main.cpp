#include "tutti/app/program.hpp"

#include "process.hpp"

#include <sched.h>
#include <sys/auxv.h>
#include <unistd.h>

#include <array>
#include <climits>
#include <cstdlib>

namespace {

bool may_use_several_cores() {
  cpu_set_t cores;
  return sched_getaffinity(0, sizeof cores, &cores) != 0 || CPU_COUNT(&cores) > 1;
}

// The threads of a part wait for each other in every layer. GNU's OpenMP lets those that wait spin for milliseconds,
// which on a busy machine keeps the ones they wait for off the cores: steps took 5 times as long and more. After 1,000
// turns, some ten microseconds, nothing is lost on a quiet machine, and little on a busy one. The library reads its
// variables when it is loaded, before any code of ours: so the program starts itself once more, in the same process.
void wait_briefly(char** argv) {
  if (std::getenv("OMP_WAIT_POLICY") != nullptr || std::getenv("GOMP_SPINCOUNT") != nullptr) return;
  const bool is_executed = getauxval(AT_BASE) != 0;  // not loaded by ld.so, called by hand
  if (!is_executed || !may_use_several_cores()) return;
  std::array<char, PATH_MAX> path{};
  if (readlink("/proc/self/exe", path.data(), path.size() - 1) <= 0) return;
  if (setenv("GOMP_SPINCOUNT", "1000", 0) == 0) execv(path.data(), argv);
}

}  // namespace

int main(int argc, char** argv) {
  tutti::block_stop_signals();  // which holds through the second start
  wait_briefly(argv);
  return tutti::run_program(argc, argv);
}
