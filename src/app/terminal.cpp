#include "terminal.hpp"

#include <unistd.h>

namespace tutti {

// Only stderr may be drawn upon: stdout is for results, and under mpirun it looks like a terminal even if it is none.
bool draws_progress(const RunConfig& config) {
  const bool terminal = ::isatty(STDERR_FILENO) == 1 && !config.quiet;
  return config.progress == "always" || (config.progress == "auto" && terminal);
}

}  // namespace tutti
