#pragma once
// Memory shared by the ranks of a host, where each writes its phase, its collectives, its process and the heartbeat of
// its watch thread.

#include "tutti/comm/world.hpp"
#include "tutti/watch/rank_status.hpp"

#include "process_activity.hpp"
#include "rank_state.hpp"

#include <atomic>
#include <cstdint>
#include <span>
#include <vector>

namespace tutti {

struct alignas(64) RankSlot {
  PlaceSlot place;
  CollectiveCounter collectives;
  std::atomic<std::int64_t> beat_ns{0};  // of its watch thread
  std::atomic<RankEnd> end{RankEnd::none};
  std::int32_t rank = 0;
  std::int32_t process = 0;
  std::uint64_t started = 0;  // as in ProcessReading
};

struct alignas(64) PageHead {
  std::atomic<std::int64_t> told_ns{0};    // when somebody of this host began to tell why the job ends; 0: nobody
  std::atomic<std::int64_t> end_at_ns{0};  // when the processes of this host end by themselves; 0: not at all
  std::int32_t first_rank = 0;             // of this host
};

class WatchPage {
 public:
  // Collective.
  explicit WatchPage(World& world);

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
  PageReader(WatchPage& page, std::int64_t now_ns);

  // Ranks quiet for so long have their processes looked at, over stretches half as long: who works on and off is at
  // work.
  void look_when_quiet_for(double seconds) { quiet_seconds_ = seconds; }
  const std::vector<RankState>& read(std::int64_t now_ns);
  // Whether this rank is the lowest of those whose watch threads beat, and so the one that acts.
  bool acts(std::int64_t now_ns) const;
  // The first rank whose process is gone, though it has not come to an end; null: there is none.
  const RankState* find_gone(std::int64_t now_ns);
  // As last read.
  const std::vector<RankState>& states() const { return states_; }

 private:
  struct Seen {
    std::int64_t changed_ns = 0;
    ActivityMeter meter{};
    bool visible = false;  // its process, from this one
  };

  WatchPage& page_;
  double quiet_seconds_ = 0;
  std::vector<RankState> states_;
  std::vector<Seen> seen_;
};

}  // namespace tutti
