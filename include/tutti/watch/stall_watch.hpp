#pragma once
// The stall watchdog: a thread of every rank that publishes its rank's status, through shared memory within a host and
// through UDP datagrams between hosts, even while the rank itself is stuck. When no rank makes progress any more, it
// names the stragglers as slow or stuck and ends the job on all hosts.

#include "tutti/base/log.hpp"
#include "tutti/base/unique_handle.hpp"
#include "tutti/comm/world.hpp"
#include "tutti/watch/rank_status.hpp"

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>

namespace tutti {

class RankWatcher;
struct JobEnd;

struct StallWatchOptions {
  double timeout_seconds = 300;
  std::string interface {};  // network interface between hosts; empty: one that reaches all of them
};

// Throws a usage error for options that are invalid on this host.
void validate(const StallWatchOptions& options);

// Why a job is ended.
struct StallReport {
  int rank = 0;  // the first straggler
  std::string host;
  StepPhase at{};
  std::string reason;
};

class StallWatch {
 public:
  // A rank that is at work in a phase of unbounded length is allowed this many times the timeout.
  static constexpr double kSlowFactor = 10;

  enum class Signals {
    ignore,           // another part of the program handles them
    report_then_die,  // SIGTERM, SIGINT, SIGHUP and SIGUSR1 end the process after it has reported a rank that died
  };

  // With `report_then_die`, construct it before any other thread of the process: threads inherit the blocked signals.
  // A rank that a launcher started ends if begin() has not succeeded after `start_seconds`: another rank may be lost.
  explicit StallWatch(Signals signals, double start_seconds = 300);
  StallWatch(const StallWatch&) = delete;
  StallWatch& operator=(const StallWatch&) = delete;
  // Does not communicate.
  ~StallWatch();

  // Starts watching and being watched, and counts the world's collectives. The world is borrowed until finish(). Throws
  // a usage error on all ranks for invalid options. Collective.
  void begin(World& world, const StallWatchOptions& options, const Log& log);
  void set_timeout(double seconds);
  // The slot in which the rank publishes its status. Other ranks cannot see it until begin() was called.
  StatusSlot& status_slot();
  // `was_received` returns whether a termination signal has arrived that another part of the program handles. It is
  // polled in the watch's thread.
  void set_signal_check(std::function<bool()> was_received);
  // Both callbacks run once, in their own thread, for one second at most. Their exceptions are ignored, so that the
  // process ends in any case.
  // Runs on one rank of the job only: the one that reports why the job is ended. After a network cut, it runs seconds
  // later on the side with fewer ranks, or without rank 0 if both have the same number: the other side may be gone.
  void set_job_end_callback(std::function<void(const StallReport&)> callback);
  // Runs in every process that a watch ends, just before its end; empty: none. Returns when the previous callback is
  // not running and will not run any more.
  void set_process_end_callback(std::function<void()> callback);

  // Whether the job is being ended, by a watch or by a failed rank of this host. Thread-safe.
  bool is_ending() const noexcept;
  // This rank ends the job itself, for a reason that it has reported. Does not return while the watch ends the job.
  void report_failure() noexcept { end(true); }
  // This rank has finished and the world is closed. Does not return while the watch ends the job.
  void finish() noexcept {
    end(false);
    stop();
  }

 private:
  struct ProcessEndCallback {
    std::mutex mutex;  // held while it runs
    std::function<void()> run;
  };

  void run();
  void end_hanging_start(std::int64_t lasted_ns) const;
  void tick(std::int64_t now, bool on_time);
  void handle_signals(std::int64_t now);
  void end(bool failed) noexcept;
  void stop() noexcept;
  void run_job_end_callback(const StallReport& report) const;
  void run_process_end_callback() const;
  [[noreturn]] void end_job(const JobEnd& end);
  [[noreturn]] void end_process(std::int64_t at_ns);
  void wait_for_launcher(double seconds);

  Descriptor signals_;  // readable when a signal has arrived; empty with Signals::ignore
  Descriptor wake_;
  int launcher_;  // the process that started this one as a rank; 0: none did, or MPI has started
  double start_seconds_;
  std::atomic<bool> is_stopping_ = false;
  std::atomic<double> timeout_seconds_ = 300;
  StatusSlot own_status_;
  std::shared_ptr<ProcessEndCallback> process_end_callback_ = std::make_shared<ProcessEndCallback>();

  mutable std::mutex mutex_;  // guards the members below
  World* world_ = nullptr;
  std::unique_ptr<RankWatcher> watcher_;
  std::function<bool()> signal_check_;
  std::optional<std::int64_t> signal_ns_;
  std::function<void(const StallReport&)> job_end_callback_;

  std::thread thread_;  // the last member, so that it starts after the others are constructed
};

}  // namespace tutti
