#include "terminal.hpp"

#include <sys/stat.h>
#include <unistd.h>

namespace tutti {

// Only stderr may be drawn upon: stdout is for results, and under mpirun it looks like a terminal even if it is none.
// Nothing is drawn into a file, whatever is asked for.
bool draws_progress(const RunConfig& config) {
  struct stat status {};
  if (::fstat(STDERR_FILENO, &status) != 0 || S_ISREG(status.st_mode)) return false;
  const bool terminal = ::isatty(STDERR_FILENO) == 1 && !config.quiet;
  return config.progress == "always" || (config.progress == "auto" && terminal);
}

}  // namespace tutti
