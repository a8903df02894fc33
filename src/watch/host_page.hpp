#pragma once
// Memory that all ranks of a host see, where each publishes its status, and what a watcher reads of it and of the
// ranks' processes.

#include "tutti/comm/world.hpp"

#include "rank_view.hpp"

#include <sys/types.h>

#include <atomic>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

namespace tutti {

// By /proc.
struct ProcessReading {
  char state = '?';              // R, S, D, T, t, Z ..
  double cpu_seconds = 0;        // used so far
  double core_wait_seconds = 0;  // that its first thread was ready to run and did not, where the system reports it
  std::uint64_t bytes = 0;       // read from and written to disks so far, where that may be seen
  std::uint64_t started = 0;     // on the system's clock, which tells it from a later process of the same number
};
// Empty: there is no such process, or none that may be seen.
std::optional<ProcessReading> read_process(pid_t process);

// What one process does, measured over intervals long enough to tell use from noise.
class ActivityMeter {
 public:
  static constexpr double kShortestSeconds = 0.25;

  // Nothing is known until an interval is over; with `quiet` false the interval is forgotten.
  Activity measure(pid_t process, std::int64_t now_ns, bool quiet, double interval_seconds = kShortestSeconds);

 private:
  Activity activity_ = Activity::unknown;
  std::int64_t begun_ns_ = 0;
  std::optional<ProcessReading> begun_;
};

struct alignas(64) RankSlot {
  StatusSlot status;
  CollectiveCounter collectives;
  std::atomic<std::int64_t> beat_ns{0};  // of its watch thread
  std::atomic<RankEnd> end{RankEnd::none};
  std::int32_t rank = 0;
  std::int32_t process = 0;
  std::uint64_t started = 0;  // as in ProcessReading
};

struct alignas(64) PageHead {
  std::atomic<std::int64_t> reported_ns{0};  // when a rank of this host began to report why the job ends; 0: none has
  std::atomic<std::int64_t> end_at_ns{0};    // when the processes of this host end by themselves; 0: not at all
  std::int32_t first_rank = 0;               // of this host
};

class HostPage {
 public:
  // Collective.
  explicit HostPage(World& world);

  RankSlot& own() { return slots_[own_]; }
  std::span<RankSlot> slots() { return slots_; }
  PageHead& head() { return *head_; }

 private:
  Buffer memory_;
  PageHead* head_;
  std::span<RankSlot> slots_;
  std::size_t own_;
};

// What one process has seen of its host's page so far.
class PageReader {
 public:
  PageReader(HostPage& page, std::int64_t now_ns);

  // Processes of ranks that are quiet for so long are looked at, over intervals half as long: a rank that works on and
  // off is at work.
  void look_when_quiet_for(double seconds) { quiet_seconds_ = seconds; }
  const std::vector<RankState>& read(std::int64_t now_ns);
  // Whether this rank is the lowest of those whose watch threads beat, and so the one that acts for the host.
  bool acts(std::int64_t now_ns) const;
  // The first rank whose process is gone although it has not ended; null: there is none.
  const RankState* find_gone(std::int64_t now_ns);
  // As last read.
  const std::vector<RankState>& states() const { return states_; }

 private:
  struct Seen {
    std::int64_t changed_ns = 0;
    ActivityMeter meter{};
    bool visible = false;  // its process, from this one
  };

  HostPage& page_;
  double quiet_seconds_ = 0;
  std::vector<RankState> states_;
  std::vector<Seen> seen_;
};

}  // namespace tutti
