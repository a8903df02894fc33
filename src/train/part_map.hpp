#pragma once
// Which rank computes which parts: as the user says, or balanced by the time that a part takes on each rank.

#include "tutti/train/trainer_options.hpp"

#include "rank_context.hpp"

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace tutti {

// By rank; above 0.
using SecondsPerPart = std::vector<double>;

// Of the slowest rank.
double step_seconds(const PartPlan& plan, const SecondsPerPart& seconds);

// The map with the least step time; of several such maps, one close to the even map. Pure arithmetic: ranks with equal
// figures reach equal maps.
PartPlan assign_by_speed(int num_parts, const SecondsPerPart& seconds);

// The same if it shortens the step by more than 5 %; otherwise the map as it is.
PartPlan reassign(const PartPlan& plan, const SecondsPerPart& seconds);

// A line with the step time predicted for a map, and whether the slow ranks are worth keeping: "parts 6,2 on 2 ranks:
// step 41.0 ms predicted, even map 60.0 ms; without rank 1 49.0 ms: it is worth keeping". Needs two ranks or more.
std::string map_note(const PartPlan& plan, const SecondsPerPart& seconds);

// True if the fastest ranks alone would finish all parts sooner by more than 5 %.
bool is_better_without_some(const PartPlan& plan, const SecondsPerPart& seconds);

// The part map of a run. With --part-map auto every rank measures a few steps now and then, all ranks gather the
// figures, and the map is balanced by them.
class PartAssignment {
 public:
  // The context is borrowed. Throws a usage error for a list that does not fit the ranks or the parts.
  PartAssignment(const RankContext& rank, const TrainerOptions& options);

  const PartPlan& plan() const noexcept { return plan_; }
  IndexRange parts() const { return plan_.parts_of(rank_.communicator.rank()); }
  // The most parts that this rank can have during the run.
  std::int64_t most_parts() const;
  // The most that any rank can have; the same on every rank.
  int most_parts_of_any() const;

  // Whether the next step is measured; the same on every rank.
  bool measures() const noexcept { return balances_ && steps_ >= next_balance_ - kMeasuredSteps; }
  // Call it after every step with the seconds that a part took on this rank; 0: unknown. Returns true when the plan has
  // changed. Waits when it balances. Collective.
  bool after_step(double seconds_per_part);
  // The notes since the last call.
  std::vector<std::string> take_notes() { return std::exchange(notes_, {}); }

 private:
  static constexpr std::int64_t kMeasuredSteps = 5;
  static constexpr std::int64_t kFirstBalance = kMeasuredSteps + 1;  // the first step warms up
  static constexpr std::int64_t kStepsBetween = 50;

  const RankContext& rank_;
  PartPlan plan_;
  bool balances_;
  std::int64_t steps_ = 0;
  std::int64_t next_balance_ = kFirstBalance;
  std::vector<double> measured_;  // since the last balancing
  std::vector<std::string> notes_;
};

}  // namespace tutti
