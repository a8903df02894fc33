#pragma once
// While one of these lives, SIGTERM, SIGUSR1, SIGHUP and SIGINT no longer end the process but are noted, for the
// training loop to see. A second SIGINT ends it at once; the others may be repeated. Those that are ignored, as the
// SIGINT of a shell's background job, stay so. SIGPIPE is ignored: whoever writes sees that nobody reads any more.
//
// No handler runs. Compiled kernels of the CPU library keep their stack pointer inside arrays for a while, where a
// handler's frame would be written over the heap; so the signals are blocked, and a thread of its own waits for them.

#include <atomic>
#include <csignal>
#include <cstdint>
#include <functional>
#include <string>
#include <thread>

namespace tutti {

// Blocks them before there is one of these, so that none that comes early ends the process.
void block_stop_signals() noexcept;
// Where there is nothing to save: what has come meanwhile ends the process now.
void unblock_stop_signals() noexcept;

class StopSignals {
 public:
  // `on_first` gets the first one that comes, at once and in another thread. At most one of these at a time in a
  // process, and before any other thread is started, which is to inherit what is blocked.
  explicit StopSignals(std::function<void(int)> on_first = {});
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
  std::function<void(int)> on_first_;
  std::atomic<int> first_ = 0;
  std::atomic<std::uint64_t> come_ = 0;  // a bit for each
  std::atomic<bool> is_ending_ = false;
  std::thread listener_;
};

// "SIGUSR1"; SIGPIPE stands for a stdout that nobody reads any more.
std::string signal_name(int signal);

}  // namespace tutti
