#pragma once
// The shared memory in which the ranks of a host publish their status, and the activity of the ranks' processes.

#include "tutti/comm/world.hpp"

#include "job_view.hpp"

#include <sys/types.h>

#include <atomic>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

namespace tutti {

// Read from /proc.
struct ProcessReading {
  char state = '?';              // R, S, D, T, t, Z ..
  double cpu_seconds = 0;        // used so far
  double core_wait_seconds = 0;  // its first thread was runnable without a core; 0 if the system does not report it
  std::uint64_t bytes = 0;       // read from and written to disks so far; 0 without permission
  std::uint64_t started = 0;     // start time, which distinguishes it from a later process with the same pid
};
// Empty: there is no such process, or it is not visible.
std::optional<ProcessReading> read_process(pid_t process);

// The activity of one process, measured over intervals long enough to distinguish use from noise.
class ActivityMeter {
 public:
  static constexpr double kShortestSeconds = 0.25;

  // Unknown until an interval has passed. With `quiet` false the interval starts again.
  Activity measure(pid_t process, std::int64_t now_ns, bool quiet, double interval_seconds = kShortestSeconds);

 private:
  Activity activity_ = Activity::unknown;
  std::int64_t begun_ns_ = 0;
  std::optional<ProcessReading> begun_;
};

struct alignas(64) RankSlot {
  StatusSlot status;
  CollectiveCounter collectives;
  std::atomic<std::int64_t> tick_ns{0};  // when its watch thread ticked last
  std::atomic<RankEnd> end{RankEnd::none};
  std::int32_t rank = 0;
  std::int32_t process = 0;
  std::uint64_t started = 0;  // as in ProcessReading
};

struct alignas(64) SharedStatusHeader {
  std::atomic<std::int64_t> end_claimed_ns{0};  // when a rank of this host claimed to report the end; 0: none has
  std::atomic<std::int64_t> end_at_ns{0};       // when this host's processes end themselves; 0: never
  std::int32_t first_rank = 0;                  // of this host
};

// One process's view of its host's status: its own slot, and the states of all ranks of the host.
class SharedStatus {
 public:
  // Collective.
  explicit SharedStatus(World& world);

  RankSlot& own() { return slots_[own_]; }
  std::span<RankSlot> slots() { return slots_; }
  SharedStatusHeader& head() { return *head_; }

  // Call it before all that follows.
  void begin(std::int64_t now_ns);
  // Measures the activity of processes whose ranks have been quiet for this long, over intervals half as long, so that
  // a rank that works intermittently counts as working.
  void set_quiet_threshold(double seconds) { quiet_threshold_ = seconds; }
  const std::vector<RankState>& read(std::int64_t now_ns);
  // The result of the last read.
  const std::vector<RankState>& states() const { return states_; }
  // Whether this rank acts for the host: the lowest of the ranks whose watch threads are alive.
  bool is_host_leader(std::int64_t now_ns) const;
  // The first rank whose process has died without ending in order; null: there is none.
  const RankState* find_gone(std::int64_t now_ns);

 private:
  struct Seen {
    std::int64_t changed_ns = 0;
    ActivityMeter meter{};
    bool visible = false;  // whether this process can see the rank's process
  };

  Buffer memory_;
  SharedStatusHeader* head_;
  std::span<RankSlot> slots_;
  std::size_t own_;
  double quiet_threshold_ = 0;
  std::vector<RankState> states_;
  std::vector<Seen> seen_;
};

}  // namespace tutti
