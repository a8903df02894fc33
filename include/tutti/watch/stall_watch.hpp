#pragma once
// The stall watchdog: a thread of every rank that tells the others where its rank is, by memory that the ranks of a
// host share and by datagrams between hosts, whatever the rank itself is stuck in. When nothing moves any more, the
// late ranks are named, slow or stuck, and the job is ended everywhere.

#include "tutti/base/log.hpp"
#include "tutti/comm/world.hpp"
#include "tutti/watch/rank_status.hpp"

#include <functional>
#include <memory>
#include <string>

namespace tutti {

struct StallWatchOptions {
  double timeout_seconds = 300;
  std::string interface {};  // between hosts; empty: one that leads to all of them
};

// Throws a usage error for what cannot be followed on this host.
void refuse_unfit(const StallWatchOptions& options);

// Why a job is ended.
struct StallReport {
  int rank = 0;  // the first of the late ones
  std::string host;
  Place place{};
  std::string reason;
};

class StallWatch {
 public:
  // At work in a phase of any length, a rank has so many times the timeout.
  static constexpr double kSlowFactor = 10;

  enum class Signals {
    left,  // to others
    last,  // SIGTERM, SIGINT, SIGHUP and SIGUSR1 end the process, but not before it has told of a rank whose end they
           // follow
  };

  // `last` wants this before any other thread of the process is started, which is to inherit what is blocked.
  explicit StallWatch(Signals signals);
  StallWatch(const StallWatch&) = delete;
  StallWatch& operator=(const StallWatch&) = delete;
  // Does not communicate.
  ~StallWatch();

  // From here on this rank is watched and watches; collectives of the world are counted. The world is borrowed until
  // leave(). Throws a usage error on all ranks for options that cannot be followed. Collective.
  void begin(World& world, const StallWatchOptions& options, const Log& log);
  // From now on.
  void set_timeout(double seconds);
  // Where the rank's rank status are published; the rank's own until begin().
  PlaceSlot& place_slot();
  // When a signal to end came that others take; polled in the watch's thread.
  void notice_signals(std::function<bool()> has_come);
  // Told of the end on one rank, before the job is ended, for a second at most and in a thread of its own.
  void tell_end_to(std::function<void(const StallReport&)> note);
  // Called once before this process is ended, for a second at most, in a thread of its own; empty: nothing is.
  // Returns when the one before is not, and will not be, called.
  void before_end(std::function<void()> action);

  // Whether the job is being ended: by a watch, or by a rank of this host that failed. For any thread.
  bool is_ending() const noexcept;
  // This rank ends the job by itself, for a reason that it has told. Does not return while the watch ends the job.
  void fail() noexcept;
  // This rank has done its work and the world is closed. Does not return while the watch ends the job.
  void leave() noexcept;

 private:
  class Watcher;
  std::unique_ptr<Watcher> watcher_;
};

}  // namespace tutti
