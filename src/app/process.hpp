#pragma once
// This process: its standard streams, how long it has run, and the signals that ask it to stop.

#include "run_config.hpp"

#include <atomic>
#include <csignal>
#include <cstdint>
#include <functional>
#include <string>
#include <thread>

namespace tutti {

// Opens /dev/null for those of the descriptors 0, 1 and 2 that are closed, so that no file of ours gets their numbers;
// as stdout for reading, so that lost results are noticed. From now on printing to stdout never fails, so that no rank
// leaves the others alone, but failures are remembered and set the exit status. The first thing that a process does.
void open_standard_streams();
// The errno of the first failed write to stdout among those flushed so far; 0: none failed.
int stdout_failure() noexcept;
// Flushes all that was printed, and throws a save error if any of it was lost.
void require_stdout();
// Whether stdout is a pipe that nobody reads any more.
bool stdout_is_abandoned() noexcept;

// Whether to draw progress on stderr, by --progress, --quiet and what stderr is.
bool draws_progress(const RunConfig& config);

// Since the kernel started this process, which is what users mean by the time that a run has taken. It counts in
// hundredths of a second.
double seconds_since_process_start();
// A clock that returns the same, cheaply.
std::function<double()> process_clock();

// Blocks the signals before there is a StopSignals, so that an early one does not end the process.
void block_stop_signals() noexcept;
// For commands that have nothing to save: a signal that has come meanwhile ends the process now.
void unblock_stop_signals() noexcept;

// While one of these lives, SIGTERM, SIGUSR1, SIGHUP and SIGINT do not end the process; the training loop asks for
// them. A second SIGINT ends the process at once; the others may be repeated. Signals that were ignored, such as SIGINT
// in a shell's background job, stay ignored. SIGPIPE is ignored: writers get an error instead.
//
// No signal handler runs: kernels of the CPU library point their stack pointer into arrays for a while, so a handler
// would overwrite the heap. The signals are blocked, and a thread waits for them.
class StopSignals {
 public:
  // `on_first` is called with the first signal, at once and in another thread. At most one StopSignals may live at a
  // time, made before any other thread starts, so that all threads inherit the blocked signals.
  explicit StopSignals(std::function<void(int)> on_first = {});
  // The signals stay blocked, so that another one does not change the exit status of a process that is ending.
  ~StopSignals();
  StopSignals(const StopSignals&) = delete;
  StopSignals& operator=(const StopSignals&) = delete;

  // The signal that came first; 0: none has come.
  int first() const noexcept { return first_; }
  bool has_come(int signal) const noexcept { return (come_ >> signal & 1) != 0; }

 private:
  void listen();

  sigset_t awaited_{};
  std::function<void(int)> on_first_;
  std::atomic<int> first_ = 0;
  std::atomic<std::uint64_t> come_ = 0;  // a bit for each
  std::atomic<bool> is_ending_ = false;
  std::thread listener_;
};

// "SIGUSR1". SIGPIPE means that nobody reads stdout any more.
std::string signal_name(int signal);

}  // namespace tutti
