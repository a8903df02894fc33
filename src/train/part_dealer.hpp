#pragma once
// The part map of a run: as asked for, or following what a part takes each rank. That is measured over a few steps
// before each look at it, and all ranks look at the same figures.

#include "tutti/backend/backend.hpp"
#include "tutti/comm/communicator.hpp"
#include "tutti/data/part_plan.hpp"
#include "tutti/train/trainer.hpp"
#include "tutti/watch/rank_status.hpp"

#include "part_map.hpp"

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace tutti {

class PartDealer {
 public:
  // Borrowed. Throws a usage error for a list that does not fit the ranks or the parts.
  PartDealer(Backend& backend, Communicator& communicator, RankStatus& rank_status, const TrainerOptions& options);

  const PartPlan& plan() const noexcept { return plan_; }
  IndexRange parts() const { return plan_.parts_of(communicator_.rank()); }
  // The most parts that this rank can ever have.
  std::int64_t most_parts() const;
  // That any rank can: the same on every rank.
  int most_parts_of_any() const;

  // Whether the step to come is to be measured; the same on every rank, as is everything but the figures.
  bool measures() const noexcept { return looks_ && steps_ >= next_look_ - kMeasuredSteps; }
  // A step is done, in which a part took this rank so long; 0: not known. True when the plan has changed. Waits where
  // there is a look at the speeds. Collective.
  bool after_step(Stream& stream, double seconds_per_part);
  // What there is to tell since the last call.
  std::vector<std::string> take_notes() { return std::exchange(notes_, {}); }

 private:
  static constexpr std::int64_t kMeasuredSteps = 5;
  static constexpr std::int64_t kFirstLook = kMeasuredSteps + 1;  // the first step warms up
  static constexpr std::int64_t kStepsBetweenLooks = 50;

  SecondsPerPart of_all_ranks(Stream& stream, double mine);

  Backend& backend_;
  Communicator& communicator_;
  RankStatus& rank_status_;
  PartPlan plan_;
  bool looks_;
  Buffer exchanged_;
  std::int64_t steps_ = 0;
  std::int64_t next_look_ = kFirstLook;
  std::vector<double> measured_;  // since the last look
  std::vector<std::string> notes_;
};

}  // namespace tutti
