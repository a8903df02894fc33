#pragma once
// While one of these lives, SIGTERM, SIGUSR1 and SIGINT no longer end the process but are noted, for the training loop
// to see. A second SIGINT ends it at once; the others may be repeated. A SIGINT that is ignored, as that of a shell's
// background job, stays so.
//
// No handler runs. Compiled kernels of the CPU library keep their stack pointer inside arrays for a while, where a
// handler's frame would be written over the heap; so the signals are blocked, and a thread of its own waits for them.

#include <atomic>
#include <csignal>
#include <cstdint>
#include <string>
#include <thread>

namespace tutti {

class StopSignals {
 public:
  // At most one at a time in a process, and before any other thread is started, which is to inherit what is blocked.
  StopSignals();
  // The signals stay blocked, so that one more of them does not take its status from a process that is leaving.
  ~StopSignals();
  StopSignals(const StopSignals&) = delete;
  StopSignals& operator=(const StopSignals&) = delete;

  // The one that came first; 0: none has come.
  int first() const noexcept { return first_; }
  bool has_come(int signal) const noexcept { return (come_ >> signal & 1) != 0; }

 private:
  void listen();

  sigset_t awaited_{};
  std::atomic<int> first_ = 0;
  std::atomic<std::uint64_t> come_ = 0;  // a bit for each
  std::atomic<bool> is_ending_ = false;
  std::thread listener_;
};

// "SIGUSR1"
std::string signal_name(int signal);

}  // namespace tutti
