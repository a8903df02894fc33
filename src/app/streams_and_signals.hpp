#pragma once
// This process: its standard streams, its run time, and the signals that ask it to stop.

#include "run_config.hpp"

#include <atomic>
#include <csignal>
#include <cstdint>
#include <functional>
#include <string>
#include <thread>

namespace tutti {

// Opens /dev/null for those of the descriptors 0, 1 and 2 that are closed, so that no other file gets their numbers;
// stdout is opened for reading, so that lost results are noticed. From now on printing to stdout never throws, so that
// no rank leaves the others waiting, but failures are remembered and set the exit status. To be called first.
void open_standard_streams();
// The errno of the first failed write to stdout so far, or 0.
int stdout_failure() noexcept;
// Flushes stdout, and throws a save error if any output was lost.
void require_stdout();
// Whether stdout is a pipe whose reader is gone.
bool stdout_is_abandoned() noexcept;

// Whether to draw progress on stderr, which depends on --progress, --quiet and the kind of stderr.
bool draws_progress(const RunConfig& config);

// The seconds since the kernel started this process, which users regard as the run time. The resolution is 10 ms.
double seconds_since_process_start();
// A cheap clock that returns the same.
std::function<double()> process_clock();

// Blocks the signals until there is a StopSignals, so that an early signal does not end the process.
void block_stop_signals() noexcept;
// For commands that have nothing to save: a pending signal ends the process now.
void unblock_stop_signals() noexcept;

// While one of these exists, SIGTERM, SIGUSR1, SIGHUP and SIGINT do not end the process; the training loop polls for
// them. A second SIGINT ends the process immediately; the others may be repeated. Signals that were ignored, such as
// SIGINT in a shell's background job, stay ignored. SIGPIPE is ignored: writers get an error instead.
//
// No signal handler runs: kernels of the CPU library point their stack pointer into arrays for a while, so a handler
// would overwrite the heap. The signals are blocked, and a thread waits for them.
class StopSignals {
 public:
  // `on_first` is called with the first signal, immediately and in another thread. Only one StopSignals may exist at a
  // time. It must be made before any other thread starts, so that all threads inherit the blocked signals. If the
  // signals are not polled `start_seconds` after the first one, because a file of the start is read for ever, the
  // process ends with ExitStatus::stopped: there is nothing to save yet.
  explicit StopSignals(std::function<void(int)> on_first = {}, double start_seconds = 60);
  // The signals stay blocked, so that another one does not change the exit status of a process that is ending.
  ~StopSignals();
  StopSignals(const StopSignals&) = delete;
  StopSignals& operator=(const StopSignals&) = delete;

  // From now on, first() is called from time to time.
  void begin_polling() const noexcept { is_polled_ = true; }
  // The first signal received, or 0.
  int first() const noexcept { return first_; }
  bool was_received(int signal) const noexcept { return (received_ >> signal & 1) != 0; }

 private:
  void listen();
  [[noreturn]] void end_start() const;

  sigset_t awaited_{};
  std::function<void(int)> on_first_;
  double start_seconds_;
  mutable std::atomic<bool> is_polled_ = false;
  std::atomic<int> first_ = 0;
  std::atomic<std::uint64_t> received_ = 0;  // one bit per signal
  std::atomic<bool> is_ending_ = false;
  std::thread listener_;
};

// "SIGUSR1". SIGPIPE means a stdout whose reader is gone.
std::string signal_name(int signal);

}  // namespace tutti
