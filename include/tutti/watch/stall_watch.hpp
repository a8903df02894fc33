#pragma once
// The stall watchdog: a thread of every rank that shows the other ranks where its rank is, by memory that the ranks of
// a host share and by datagrams between hosts, whatever the rank itself is stuck in. When nothing moves any more, the
// late ranks are named, slow or stuck, and the job is ended everywhere.

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

class HostWatch;
struct JobEnd;

struct StallWatchOptions {
  double timeout_seconds = 300;
  std::string interface {};  // between hosts; empty: one that leads to all of them
};

// Throws a usage error for options that this host cannot follow.
void refuse_unfit(const StallWatchOptions& options);

// Why a job is ended.
struct StallReport {
  int rank = 0;  // the first of the late ones
  std::string host;
  StepPhase at{};
  std::string reason;
};

class StallWatch {
 public:
  // A rank at work in a phase of any length has this many times the timeout.
  static constexpr double kSlowFactor = 10;

  enum class Signals {
    left,  // to others
    last,  // SIGTERM, SIGINT, SIGHUP and SIGUSR1 end the process, but not before it has reported a rank that is gone
  };

  // With `last`, before any other thread of the process is started: those inherit what is blocked.
  explicit StallWatch(Signals signals);
  StallWatch(const StallWatch&) = delete;
  StallWatch& operator=(const StallWatch&) = delete;
  // Does not communicate.
  ~StallWatch();

  // From here on this rank is watched and watches, and collectives of the world are counted. The world is borrowed
  // until leave(). Throws a usage error on all ranks for options that cannot be followed. Collective.
  void begin(World& world, const StallWatchOptions& options, const Log& log);
  // From now on.
  void set_timeout(double seconds);
  // Where the rank publishes its status; until begin() nobody else sees it.
  StatusSlot& status_slot();
  // Whether a signal to end has come that others take; polled in the watch's thread.
  void notice_signals(std::function<bool()> has_come);
  // Called on one rank before the job is ended, in a thread of its own that is given a second.
  void report_end_to(std::function<void(const StallReport&)> note);
  // Called once before this process is ended, in a thread of its own that is given a second; empty: nothing is. Returns
  // when the one before is not, and will not be, called.
  void before_end(std::function<void()> action);

  // Whether the job is being ended: by a watch, or by a rank of this host that failed. For any thread.
  bool is_ending() const noexcept;
  // This rank ends the job by itself, for a reason that it has reported. Does not return while the watch ends the job.
  void fail() noexcept;
  // This rank has done its work and the world is closed. Does not return while the watch ends the job.
  void leave() noexcept;

 private:
  struct EndAction {
    std::mutex mutex;  // held while it runs
    std::function<void()> action;
  };
  enum class Ending { failure, in_order };

  void run();
  void beat(std::int64_t now, bool on_time);
  void follow_signals(std::int64_t now);
  void end_as(Ending ending) noexcept;
  void stop() noexcept;
  void leave_note(const StallReport& report) const;
  void run_end_action() const;
  [[noreturn]] void end_job(const JobEnd& end);
  [[noreturn]] void end_process(std::int64_t at_ns);
  void wait_for_launcher(double seconds);

  Descriptor signals_;  // readable when one has come; none where they are left to others
  Descriptor wake_;
  std::atomic<bool> is_stopping_ = false;
  std::atomic<double> timeout_seconds_ = 300;
  StatusSlot own_status_;
  std::shared_ptr<EndAction> end_action_ = std::make_shared<EndAction>();

  mutable std::mutex mutex_;  // guards all that follows
  World* world_ = nullptr;
  std::unique_ptr<HostWatch> host_;
  std::function<bool()> has_signal_come_;
  std::optional<std::int64_t> signal_ns_;
  std::function<void(const StallReport&)> note_;

  std::thread thread_;  // last, so that it starts when all else is there
};

}  // namespace tutti
