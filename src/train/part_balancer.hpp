#pragma once
// Which rank computes which parts: as the user says, or balanced by the time that a part takes on each rank.

#include "tutti/train/trainer_options.hpp"

#include "rank_context.hpp"

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace tutti {

// The time of a part on each rank; above 0.
using SecondsPerPart = std::vector<double>;

// The predicted time of the slowest rank.
double step_seconds(const PartMap& map, const SecondsPerPart& seconds);

// The map with the shortest step time; of several such maps, one close to the even map. Pure arithmetic: equal
// measurements give equal maps on all ranks.
PartMap assign_by_speed(int num_parts, const SecondsPerPart& seconds);

// The same if it shortens the step by more than 5 %; otherwise the map as it is.
PartMap reassign(const PartMap& map, const SecondsPerPart& seconds);

// A line with the step time predicted for a map, and whether the slow ranks help: "parts 6,2 on 2 ranks: step 41.0 ms
// predicted, even map 60.0 ms; predicted without rank 1: 49.0 ms, so rank 1 helps". Needs two ranks or more.
std::string map_note(const PartMap& map, const SecondsPerPart& seconds);

// True if the fastest ranks alone would finish all parts sooner by more than 5 %.
bool is_better_without_some(const PartMap& map, const SecondsPerPart& seconds);

// The part map of a run. With --part-map auto every rank periodically times a few steps, the ranks all-gather the
// medians, and the map is balanced by them.
class PartBalancer {
 public:
  // The context is borrowed. Throws a usage error for a list that does not fit the ranks or the parts.
  PartBalancer(const RankContext& context, const TrainerOptions& options);

  const PartMap& map() const noexcept { return map_; }
  IndexRange parts() const { return map_.parts_of(context_.communicator.rank()); }
  // The largest number of parts that this rank, and that any rank, can have during the run.
  int max_parts() const;
  int max_parts_of_any() const;

  // Whether the next step is timed; the same on every rank.
  bool times_next_step() const noexcept { return balanced_ && steps_ >= next_balance_ - kTimedSteps; }
  // Call it after every step with the seconds that a part took on this rank; 0: unknown. Returns true when the map has
  // changed. Waits when it balances. Collective.
  bool after_step(double seconds_per_part);
  // The notes since the last call.
  std::vector<std::string> take_notes() { return std::exchange(notes_, {}); }

 private:
  static constexpr std::int64_t kTimedSteps = 5;
  static constexpr std::int64_t kFirstBalance = kTimedSteps + 1;  // the first step warms up
  static constexpr std::int64_t kStepsBetween = 50;

  const RankContext& context_;
  PartMap map_;
  std::vector<int> max_parts_;  // by rank
  bool balanced_;
  std::int64_t steps_ = 0;
  std::int64_t next_balance_ = kFirstBalance;
  std::vector<double> times_;  // the seconds per part of the steps timed since the last balancing
  std::vector<std::string> notes_;
};

}  // namespace tutti
