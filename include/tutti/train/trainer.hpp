#pragma once
// One training run: the loop around the steps. The caller decides who the ranks are, which processor computes and
// where reports go.

#include "tutti/storage/train_state.hpp"
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
class StepThrottle;

struct RunPlan {
  std::int64_t steps = 0;           // after which this launch ends
  std::int64_t epochs = 0;          // the last may end early
  std::int64_t epoch_steps = 0;     // of the first epoch
  std::int64_t schedule_steps = 0;  // length of the learning rate's schedule, wherever this launch ends
};
// Throws a usage error if the training set of `samples` does not fill a batch.
RunPlan plan_run(const TrainerOptions& options, std::int64_t samples);

// Sets the initial weights that depend on the training images, those of LayerInitializer::whitening. Call it before a
// Trainer of a new run is made.
void set_whitening(Network& network, const Dataset& train, const ImageRecipe& recipe);

class Trainer {
 public:
  // Initializes the weights and plans every shape that can occur. Call all functions in one thread. Throws usage
  // errors for options that do not fit each other or the data.
  Trainer(const TrainerContext& context, const TrainerOptions& options, RunMetadata metadata);
  ~Trainer();
  Trainer(const Trainer&) = delete;
  Trainer& operator=(const Trainer&) = delete;

  // Continues from this state. Throws a checkpoint error that names the first tensor, or item of the progress, that
  // does not fit. The planned end may differ from that of the launch before.
  void restore(const TrainState& state);
  // Starts from these weights and statistics instead of random ones, before the first step. Those of the last layer
  // may be missing or have another shape: they stay random, as with `new_head`, and their names are returned. Throws
  // an input error that names any other tensor that does not fit.
  std::vector<std::string> initialize_from(const TrainState& state, bool new_head = false) {
    return replica_.state().initialize_from(state, new_head);
  }
  // All that restore() needs, the same on every rank but for the arrays: only those of `shard`, none without one.
  // Throws on all ranks when the loss or a weight is no longer finite, so that such a state is never saved. Collective.
  TrainState snapshot(const std::optional<FileShard>& shard = FileShard{});

  // Trains one step. Collective. Asynchronous, up to steps_ahead steps.
  void step();
  // Waits until all steps so far are done.
  void synchronize();
  // Steps, evaluates and reports until the planned end, or until the observer stops it. Collective.
  RunEnd run(RunObserver& observer);

  // Measurements and injected faults use it.
  Replica& replica() { return replica_; }
  std::int64_t steps_done() const { return progress_.step; }
  std::int64_t planned_steps() const { return plan_.steps; }
  // The learning rate of the next step.
  double learning_rate() const { return learning_rate_.at(progress_.step, progress_.epoch); }
  // The next step, as the replica needs it.
  StepRequest next_step() const;
  // Steps that were skipped, of those done.
  std::int64_t skipped_steps() const { return progress_.skipped_steps; }
  // After whole epochs: the number of samples of the last epoch that no step has used (rollover and discard).
  std::int64_t samples_left_over() const;
  // Why the run ends before its planned end (TrainerOptions::early_stop); empty: it does not. Equal on all ranks.
  std::string early_end() const;
  const BestTest& best_test() const { return progress_.best; }
  // The epoch, counted from 1, to which this step of the run belongs.
  std::int64_t epoch_of(std::int64_t step) const { return sampler().epoch_of(step) + 1; }
  std::uint64_t weights_digest() { return replica_.state().weights_digest(); }
  // The number of parts that this rank computes concurrently.
  int workers() const;
  std::size_t memory_bytes() const { return replica_.memory_bytes(); }

 private:
  // Throws a checkpoint error for progress that a run with these options and this data cannot have.
  void require_matching_progress(const TrainProgress& progress) const;

  const SplitBatchSampler& sampler() const { return replica_.loader().sampler(); }
  // Verifies the replicas after the step if that is due.
  void verified_step(RunObserver& observer);
  // Reports to the observer and throws on all ranks when the replicas differ.
  void verify(RunObserver& observer);
  // Passes the shard's state to the observer's function. Verifies the replicas first.
  void pass_state(const std::optional<FileShard>& shard, RunObserver& observer,
                  void (RunObserver::*receive)(TrainState, double));
  void report_step(RunObserver& observer);
  TrainSums rank_loss();
  // The sums of the epoch over all ranks. Collective.
  TrainSums epoch_sums();
  void finish_epoch(RunObserver& observer, bool whole);
  void refuse_not_finite(const LossSums& sums) const;
  void refuse_not_finite(const TrainState& state);
  // `ended_epoch` counts from 1; 0 if no epoch has just ended.
  bool checkpoint_due(std::int64_t ended_epoch, bool run_ended) const;
  void start_next_epoch();
  void skip_empty_epochs();

  const Network& network_;
  TrainerOptions options_;
  RunMetadata metadata_;
  Communicator* norm_communicator_;  // or null

  Replica replica_;
  const RankContext& context_;
  std::unique_ptr<StepThrottle> throttle_;
  std::unique_ptr<Evaluator> evaluator_;  // null: there is no test set

  RunPlan plan_;
  LrSchedule learning_rate_;
  std::vector<SplitBatchSampler> report_samplers_;  // one per part; empty unless samples are reported
  TrainProgress progress_;
  std::int64_t audits_ = 0;               // of this epoch, in this launch
  TrainSums logged_;                      // the epoch's sums when the last interval was reported
  TrainSums sums_at_last_rank_loss_;      // this rank's sums when rank_loss() was last called
  double rank_weight_ = 0;                // TrainSums::weight of this rank's sums
  StepResult done_;                       // of the last step
  std::optional<std::int64_t> verified_;  // the step after which the state was last equal on all ranks
};

}  // namespace tutti
