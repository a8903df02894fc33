#pragma once
// What a trainer holds: a replica, where the run is, and the order of what happens between its steps.

#include "tutti/train/trainer.hpp"

#include "evaluator.hpp"
#include "replica.hpp"
#include "replica_proof.hpp"
#include "run_plan.hpp"
#include "step_pace.hpp"
#include "sum_over_ranks.hpp"

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace tutti {

class Trainer::Run {
 public:
  Run(const TrainerParts& parts, const TrainerOptions& options, RunFacts facts);
  ~Run();
  Run(const Run&) = delete;
  Run& operator=(const Run&) = delete;

  void restore(const TrainState& state);
  std::vector<std::string> start_from(const TrainState& state) { return replica_.start_from(state); }
  TrainState snapshot(const std::optional<FileShare>& share);
  void step();
  StepTimes timed_step();
  StepTimes paced_step(const StepTimes& pace) { return replica_.paced_step(pace, progress_.step); }
  void step_with(const Tensor& gradients);
  void settle();
  RunEnd run(RunObserver& observer);
  LossSums evaluate();
  LossSums global_epoch_sums() { return sum_over_ranks_(replica_.stream(), replica_.team().sums()); }

  Replica& replica() { return replica_; }
  const TrainProgress& progress() const { return progress_; }
  std::int64_t planned_steps() const { return plan_.steps; }
  double learning_rate() const { return learning_rate_.at(progress_.step, progress_.epoch); }
  std::int64_t samples_left_over() const;
  std::size_t memory_bytes() const { return replica_.memory_bytes(); }

 private:
  const SplitBatchSampler& schedule() const { return replica_.loader().schedule(); }
  StepRequest request();
  void advance(const StepRequest& done);
  // A step whose replicas are verified where that is due.
  void verified_step(RunObserver& observer);
  // Throws on all ranks when the replicas differ, after the observer has the report.
  void verify(RunObserver& observer);
  // Verifies the replicas first.
  void save(RunObserver& observer);
  void report_step(RunObserver& observer);
  LossSums rank_loss();
  void finish_epoch(RunObserver& observer, bool whole);
  void refuse_not_finite(const LossSums& sums) const;
  void refuse_not_finite(const TrainState& state);
  bool checkpoint_due(bool epoch_ended, bool run_ended) const;
  void prepare_evaluation();  // where there is a test set
  void start_next_epoch();
  void skip_empty_epochs();

  TrainerOptions options_;
  RunFacts facts_;
  Backend& backend_;
  Communicator& communicator_;
  const Dataset* test_;             // null: none
  std::vector<std::string> hosts_;  // by rank, for messages; empty: not named

  RankStatus own_whereabouts_;  // unless told to the caller's
  RankStatus& rank_status_;
  Replica replica_;
  StepPace pace_;
  std::optional<ReplicaProof> proof_;  // where replicas are verified
  SumOverRanks sum_over_ranks_;
  std::optional<Evaluator> evaluator_;

  RunPlan plan_;
  LrSchedule learning_rate_;
  std::vector<SplitBatchSampler> reported_;  // of all parts, where their samples are told
  TrainProgress progress_;
  std::int64_t replayed_steps_ = 0;  // the replica's, as far as they are counted in the progress
  LossSums logged_;  // the sums when the last stretch was reported, counted from the start of the epoch under way
  LossSums asked_;   // this rank's, when rank_loss() was last called
  std::optional<std::uint64_t> gradients_digest_;
  std::optional<SkippedReport> skipped_;
  std::optional<std::int64_t> verified_;  // the state after so many steps was equal on all ranks
};

}  // namespace tutti
