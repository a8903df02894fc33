#pragma once
// What a process of this host does, by /proc: gone, stopped, at work or asleep.

#include "rank_state.hpp"

#include <sys/types.h>

#include <cstdint>
#include <optional>

namespace tutti {

struct ProcessReading {
  char state = '?';              // R, S, D, T, t, Z ..
  double cpu_seconds = 0;        // used so far
  double core_wait_seconds = 0;  // ready to run so far, and not running: of its first thread, where that is told
  std::uint64_t bytes = 0;       // read from and written to disks so far, where that may be seen
  std::uint64_t started = 0;     // on the system's clock, which tells it from a later process of the same number
};
// Empty: there is none, or none that may be seen.
std::optional<ProcessReading> read_process(pid_t process);
bool exists(pid_t process);

// Of one process, over stretches long enough to tell use from noise.
class ActivityMeter {
 public:
  static constexpr double kShortestSeconds = 0.25;

  // Nothing is read until a stretch is over; with `quiet` false it is forgotten.
  Activity measure(pid_t process, std::int64_t now_ns, bool quiet, double stretch_seconds = kShortestSeconds);

 private:
  Activity activity_ = Activity::unknown;
  std::int64_t begun_ns_ = 0;
  std::optional<ProcessReading> begun_;
};

}  // namespace tutti
