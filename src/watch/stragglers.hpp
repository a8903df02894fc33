#pragma once
// Which ranks a job that stands still waits for, when that is reported, and when the job is ended. Knows no clock and
// no process: what is known of the ranks decides.

#include "rank_view.hpp"

#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace tutti {

// Why ranks count as stragglers; the first reason that holds for any rank goes before the others.
enum class Lateness {
  gone,     // its process ended without a message
  stopped,  // by a signal
  silent,   // its host was heard, and is not any more
  absent,   // it has not come where others wait
  unheard,  // its host was never heard, and all ranks of the others wait
  behind,   // all wait, and it has begun fewer collectives than others
  unknown,  // all wait alike
};

struct Stragglers {
  Lateness lateness = Lateness::unknown;
  std::vector<std::size_t> ranks{};  // ascending; empty: no rank is left
  int waiting = 0;                   // other ranks, for them
  bool is_slow = false;  // not stuck, for all that is known: at work in a phase of any length, without a core, unheard
};

// Whether the rank can do nothing but wait for other ranks.
bool waits(const RankState& state);
// `ranks` are all of the job, by rank; so everywhere here.
Stragglers find_stragglers(std::span<const RankView> ranks);

// "rank 2 on n1 is late: in forward of step 17 for 15.0 s, computing; 3 ranks wait for it". `stuck`: ".. is stuck: ..".
std::string late_text(const Stragglers& stragglers, std::span<const RankView> ranks, bool stuck);
// Who was late and is not any more.
std::string arrival_text(const Stragglers& stragglers, std::span<const RankView> ranks, double still_seconds);
// A table of all ranks; neighbours that are alike share a line.
std::string table_text(const Stragglers& stragglers, std::span<const RankView> ranks);

struct StallFinding {
  enum class Kind {
    nothing,
    late,   // once, in good time
    moves,  // again, after that
    stuck,  // until something moves
  };
  Kind kind = Kind::nothing;
  Stragglers stragglers{};
  double still_seconds = 0;
};

// Asked again and again whether the job stands still.
class StallCheck {
 public:
  explicit StallCheck(std::int64_t now_ns) : still_since_ns_(now_ns) {}

  // `on_time`: the watch ran when it wanted to; otherwise perhaps nobody did, and the time starts again.
  struct Look {
    std::int64_t now_ns = 0;
    bool on_time = true;
    double timeout_seconds = 300;
  };
  StallFinding look(const Look& look, std::span<const RankView> ranks);

 private:
  bool has_moved(std::span<const RankView> ranks);

  std::int64_t still_since_ns_;
  std::vector<std::uint64_t> moves_;  // by rank, at the last look
  bool warned_ = false;
  Stragglers warned_of_{};
};

}  // namespace tutti
