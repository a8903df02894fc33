#pragma once
// Which rank computes which parts: as the user asks, or by what a part takes each rank.

#include "tutti/train/trainer_options.hpp"

#include "rank_context.hpp"

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace tutti {

// By rank, above 0.
using SecondsPerPart = std::vector<double>;

// Of the slowest rank.
double step_seconds(const PartPlan& plan, const SecondsPerPart& seconds);

// The map whose slowest rank is done first; of several such maps, one near the even one. Pure arithmetic, so ranks with
// equal figures decide alike.
PartPlan assign_by_speed(int num_parts, const SecondsPerPart& seconds);

// The same where it shortens the step by more than 5 %, else the map as it is.
PartPlan reassign(const PartPlan& plan, const SecondsPerPart& seconds);

// What a map promises, in one line, and whether the slow ranks are worth keeping: "parts 6,2 on 2 ranks: step 41.0 ms
// predicted, even map 60.0 ms; without rank 1 49.0 ms: it is worth keeping". Two ranks or more.
std::string map_note(const PartPlan& plan, const SecondsPerPart& seconds);

// True when the fastest ranks alone finish all parts sooner, by more than 5 %.
bool is_better_without_some(const PartPlan& plan, const SecondsPerPart& seconds);

// The part map of a run. With --part-map auto it is balanced now and then: a few steps are measured on every rank, and
// all ranks see the figures of all.
class PartAssignment {
 public:
  // The context is borrowed. Throws a usage error for a list that does not fit the ranks or the parts.
  PartAssignment(const RankContext& rank, const TrainerOptions& options);

  const PartPlan& plan() const noexcept { return plan_; }
  IndexRange parts() const { return plan_.parts_of(rank_.communicator.rank()); }
  // The most parts that this rank can ever have.
  std::int64_t most_parts() const;
  // The most that any rank can have: the same on every rank.
  int most_parts_of_any() const;

  // Whether the next step is to be measured; the same on every rank.
  bool measures() const noexcept { return balances_ && steps_ >= next_balance_ - kMeasuredSteps; }
  // To be called after every step, with the seconds that a part took this rank; 0: not known. True when the plan has
  // changed. Waits where the plan is balanced. Collective.
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
  std::vector<double> measured_;  // since the plan was balanced last
  std::vector<std::string> notes_;
};

}  // namespace tutti
