#pragma once
// One training run: the loop around the steps. Who the ranks are, which processor computes and where reports go is
// decided by the caller, who lends the parts.

#include "tutti/checkpoint/train_state.hpp"
#include "tutti/train/lr_schedule.hpp"
#include "tutti/train/replica.hpp"
#include "tutti/train/run_observer.hpp"
#include "tutti/train/trainer_options.hpp"

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace tutti {

class Evaluator;
class StepPace;

class Trainer {
 public:
  // Initialises the weights and plans every shape that can occur. To be called, like all else here, in the thread
  // that trains. Throws usage errors for options that do not fit each other or the data.
  Trainer(const TrainerParts& parts, const TrainerOptions& options, RunFacts facts);
  ~Trainer();
  Trainer(const Trainer&) = delete;
  Trainer& operator=(const Trainer&) = delete;

  // Continues from there. Throws a checkpoint error that names the first tensor, or item of the progress, that does not
  // fit. The planned end may be another than it was.
  void restore(const TrainState& state);
  // Starts from these weights and statistics instead of drawn ones, before the first step. Those of the last layer with
  // any may be missing or of another shape: they stay as drawn, and their names are returned. Throws an input error
  // that names any other tensor that does not fit.
  std::vector<std::string> start_from(const TrainState& state) { return replica_.start_from(state); }
  // Everything that restore() needs, the same on every rank; of its arrays, only those of `share`, and without one
  // none. Throws on all ranks when the loss or a weight is no longer finite, so that such a state is never kept.
  // Collective.
  TrainState snapshot(const std::optional<FileShare>& share = FileShare{});

  // One step of training. Collective. Asynchronous, as far as steps_ahead allows.
  void step();
  // Returns when all steps so far are done.
  void settle();
  // Steps, evaluates and reports until the planned end, or until the observer stops it. Collective.
  RunEnd run(RunObserver& observer);

  // What is trained: for measurements, injected faults and figures.
  Replica& replica() { return replica_; }
  std::int64_t steps_done() const { return progress_.step; }
  std::int64_t planned_steps() const { return plan_.steps; }
  // Of the next step.
  double learning_rate() const { return learning_rate_.at(progress_.step, progress_.epoch); }
  // Of the steps done, how many have changed nothing.
  std::int64_t skipped_steps() const { return progress_.skipped_steps; }
  // After whole epochs: samples of the last that no step has used (rollover and discard).
  std::int64_t samples_left_over() const;
  std::uint64_t weights_digest() { return replica_.weights_digest(); }
  // Parts of this rank that are computed at once.
  int workers() const;
  std::size_t memory_bytes() const { return replica_.memory_bytes(); }

 private:
  struct Plan {
    std::int64_t steps = 0;           // after which this launch ends
    std::int64_t epochs = 0;          // of which the last may end early
    std::int64_t schedule_steps = 0;  // over which the learning rate's schedule stretches, wherever this launch ends
  };
  // Throws a usage error where `samples` fill no batch.
  static Plan plan_run(const TrainerOptions& options, const SplitBatchSampler& schedule, std::int64_t samples);
  // Throws a checkpoint error for progress that a run with these options and this data cannot have made.
  void refuse_misfit(const TrainProgress& progress) const;

  const SplitBatchSampler& schedule() const { return replica_.loader().schedule(); }
  // A step whose replicas are verified where that is due.
  void verified_step(RunObserver& observer);
  // Throws on all ranks when the replicas differ, after the observer has the report.
  void verify(RunObserver& observer);
  // Verifies the replicas first.
  void save(RunObserver& observer);
  void report_step(RunObserver& observer);
  LossSums rank_loss();
  // Over all ranks. Collective.
  LossSums epoch_sums();
  void finish_epoch(RunObserver& observer, bool whole);
  void refuse_not_finite(const LossSums& sums) const;
  void refuse_not_finite(const TrainState& state);
  bool checkpoint_due(bool epoch_ended, bool run_ended) const;
  void start_next_epoch();
  void skip_empty_epochs();

  TrainerOptions options_;
  RunFacts facts_;
  Backend& backend_;
  Communicator& communicator_;
  std::vector<std::string> hosts_;  // by rank, for messages; empty: unknown

  Replica replica_;
  RankStatus& status_;
  std::unique_ptr<StepPace> pace_;
  std::unique_ptr<ReplicaProof> proof_;   // where replicas are verified
  std::unique_ptr<Evaluator> evaluator_;  // where there is a test set

  Plan plan_;
  LrSchedule learning_rate_;
  std::vector<SplitBatchSampler> reported_;  // of all parts, where their samples are reported
  TrainProgress progress_;
  std::int64_t redone_steps_ = 0;  // the replica's, as far as they are counted in the progress
  LossSums logged_;  // the sums when the last interval was reported, counted from the start of the epoch under way
  LossSums asked_;   // this rank's, when rank_loss() was last called
  std::optional<std::uint64_t> gradients_digest_;
  std::optional<SkippedReport> skipped_;
  std::optional<std::int64_t> verified_;  // the step after which the state was last equal on all ranks
};

}  // namespace tutti
