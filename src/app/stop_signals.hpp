#pragma once
// While one of these lives, SIGTERM, SIGUSR1 and SIGINT no longer end the process but are noted, for the training loop
// to see. A second SIGINT ends it at once; the others may be repeated. A SIGINT that is ignored, as that of a shell's
// background job, stays so.

#include <csignal>
#include <string>
#include <utility>
#include <vector>

namespace tutti {

class StopSignals {
 public:
  // At most one at a time in a process.
  StopSignals();
  // What these signals did before, they do again.
  ~StopSignals();
  StopSignals(const StopSignals&) = delete;
  StopSignals& operator=(const StopSignals&) = delete;

  // The one that came first; 0: none has come.
  int first() const noexcept;

 private:
  void restore() const noexcept;

  std::vector<std::pair<int, struct sigaction>> before_;
};

// "SIGUSR1"
std::string signal_name(int signal);

}  // namespace tutti
