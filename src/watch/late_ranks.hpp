#pragma once
// Which ranks a job that stands still waits for. Knows no clock and no process: what is known of the ranks decides.

#include "rank_state.hpp"

#include <span>
#include <vector>

namespace tutti {

// Why a rank counts as late; the first that holds for any rank goes before the others.
enum class Lateness {
  gone,     // its process ended without a word
  stopped,  // by a signal
  silent,   // its host was heard, and is not any more
  absent,   // it has not come where others wait
  unheard,  // its host was never heard, and all ranks of the others wait
  behind,   // all wait, and it has come to fewer collectives than others
  unknown,  // all wait alike
};

struct LateRanks {
  Lateness lateness = Lateness::unknown;
  std::vector<std::size_t> places{};  // in what was judged, ascending; empty: no rank is left
  int waiting = 0;                    // others, for them
  bool is_slow = false;  // not stuck, for all that is known: at work in a phase of any length, without a core, unheard
};

// Whether it can do nothing but wait for other ranks.
bool waits(const RankState& state);
LateRanks late_ranks(std::span<const RankView> ranks);

}  // namespace tutti
