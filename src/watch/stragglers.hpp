#pragma once
// Decides which ranks a stalled job waits for, when that is reported, and when the job is ended. Reads no clock and no
// process: the caller passes in the ranks' states and the time.

#include "job_view.hpp"

#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace tutti {

// Why ranks count as stragglers, in order of precedence.
enum class Lateness {
  gone,               // its process died without a message
  stopped,            // by a signal
  lost_contact,       // datagrams from its host have stopped arriving
  not_waiting,        // it has not reached the collective in which others wait
  never_contacted,    // no datagram from its host ever arrived, and all ranks of the others wait
  fewer_collectives,  // all wait, and it has started fewer collectives than others
  same_collective,    // all wait in the same collective
};

struct Stragglers {
  Lateness lateness = Lateness::same_collective;
  std::vector<std::size_t> ranks{};  // ascending; empty: all ranks have finished
  int waiting = 0;                   // number of other ranks that wait for them
  // Probably not stuck: at work in a phase of unbounded length, without a core, or never contacted.
  bool is_slow = false;
};

// Whether the rank is blocked waiting for other ranks.
bool waits(const RankState& state);
// Here and below, `ranks` are all ranks of the job, in order.
Stragglers find_stragglers(std::span<const RankView> ranks);

// Whether contact with other hosts was lost, and those that are left are a minority of the ranks, or the half without
// rank 0: after a network cut, the other side's finding is kept.
bool sees_minority(std::span<const RankView> ranks);

// "rank 2 on n1 is late: in forward of step 17 for 15.0 s, computing; 3 ranks wait for it". `stuck`: ".. is stuck: ..".
std::string late_text(const Stragglers& stragglers, std::span<const RankView> ranks, bool stuck);
// Names the ranks that were late and have recovered.
std::string recovery_text(const Stragglers& stragglers, std::span<const RankView> ranks, double stalled_seconds);
// A table of all ranks; consecutive equal ranks share a line.
std::string table_text(const Stragglers& stragglers, std::span<const RankView> ranks);

struct StallFinding {
  enum class Kind {
    nothing,
    late,       // returned once, at half the timeout
    recovered,  // after `late`
    stuck,      // returned at every update until there is progress
  };
  Kind kind = Kind::nothing;
  Stragglers stragglers{};
  double stalled_seconds = 0;
};

// Detects stalls. Updated at every tick of the watch.
class StallCheck {
 public:
  explicit StallCheck(std::int64_t now_ns) : last_progress_ns_(now_ns) {}

  struct Timing {
    std::int64_t now_ns = 0;
    bool on_time = true;  // false: the tick was late, as after a suspend, and the time starts again
    double timeout_seconds = 300;
  };
  StallFinding update(const Timing& timing, std::span<const RankView> ranks);

 private:
  bool has_progress(std::span<const RankView> ranks);

  std::int64_t last_progress_ns_;
  std::vector<std::uint64_t> progress_counts_;  // by rank, at the last update
  bool warned_ = false;
  Stragglers warned_stragglers_{};
};

}  // namespace tutti
