#pragma once
// What a run reports as it advances. The trainer calls these functions on every rank, with arguments that differ
// between ranks only in measured times, in rank_loss and in the arrays of a TrainState. The observer decides what is
// printed, written or ignored.

#include "tutti/backend/layer.hpp"
#include "tutti/data/batch_loader.hpp"
#include "tutti/storage/train_state.hpp"
#include "tutti/watch/rank_status.hpp"

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

namespace tutti {

// A whole epoch, or what a run that --steps ended has seen of it.
struct EpochReport {
  std::int64_t epoch = 0;   // counted from 1
  std::int64_t epochs = 0;  // planned
  std::int64_t step = 0;    // steps done in the run
  TrainSums train{};
  std::optional<LossSums> test{};
  double seconds = 0;        // of training alone
  double test_seconds = 0;   // of the evaluation, the last thing before this report
  double learning_rate = 0;  // of the last step
  std::uint64_t weights_digest = 0;
  // Steps repeated because a gradient was too large for its grid (--exchange exact).
  std::int64_t redone_steps = 0;
  std::optional<std::int64_t> audits{};  // parts audited by this launch, if it audits any

  double images_per_second() const { return seconds > 0 ? static_cast<double>(train.samples) / seconds : 0; }
};

// A whole epoch, or what the run has seen of it, with its evaluation and its checkpoint.
struct EpochEnd {
  std::int64_t epoch = 0;     // counted from 1
  std::int64_t step = 0;      // steps done in the run
  PreparedImages prepared{};  // by this rank since the launch
};

// The steps since the last such report.
struct IntervalReport {
  std::int64_t step = 0;
  TrainSums train{};
  double learning_rate = 0;
};

struct DigestReport {
  std::int64_t step = 0;
  std::uint64_t weights = 0;
  std::uint64_t gradients = 0;
  std::uint64_t optimizer = 0;
  std::optional<std::uint64_t> statistics{};  // if the network has any
  std::optional<std::uint64_t> averages{};    // if they are kept
};

struct StepProgress {
  std::int64_t epoch = 0;  // counted from 1
  std::int64_t epochs = 0;
  std::int64_t step_in_epoch = 0;  // done
  std::int64_t steps_in_epoch = 0;
  std::int64_t step = 0;  // done in the run
  std::int64_t steps = 0;
  std::int64_t samples = 0;  // of this step, over all parts
  // The loss of this rank's parts over the steps since the last call, within this epoch. It waits for the device, so it
  // should be called only once in a while, never at every step. Not a collective.
  std::function<TrainSums()> rank_loss{};
};

// The samples of one global batch, part by part.
struct SampleReport {
  std::int64_t step = 0;   // steps done in the run, this one included
  std::int64_t epoch = 0;  // counted from 1
  std::vector<std::vector<std::int64_t>> parts;
};

// The replicas differ after `step` steps.
struct DivergenceReport {
  std::int64_t step = 0;
  std::optional<std::int64_t> equal_after{};  // empty: they were never shown to be equal
  std::vector<std::string> tensors{};         // those that differ, named as in a checkpoint, with their group
  std::vector<int> ranks{};                   // those that differ from the majority; all, if there is none
  std::string text;                           // the same as a sentence
};

// A part that was computed twice with different results. The step was not applied.
struct WrongPartReport {
  std::int64_t step = 0;  // counted from 1
  int part = 0;
  std::vector<int> ranks{};  // those whose result was wrong
  bool is_decided = false;   // else either of `ranks` may be
  std::string layer{};       // the first in which the results differ, in this pass
  Phase pass = Phase::forward;
  bool repeats = false;                  // a repetition was wrong, too, and shows layer and pass exactly
  std::int64_t last_confirmed_step = 0;  // in which an audit confirmed the first of `ranks`; 0: none of this launch
  std::string text{};                    // the same as a sentence
};

// A step that was skipped because a loss or gradient in it was not finite.
struct SkippedReport {
  std::int64_t step = 0;
  int rank = 0;             // the first that found it
  std::string tensor;       // of the weight or gradient: "conv1/weight"; or "loss"
  std::string finding;      // as a sentence
  std::int64_t in_all = 1;  // steps skipped in the run by now
};

// What the run does after a step beyond what its options say.
enum class BoundaryAction { proceed, keep, save, save_and_stop };

// How a run that did not fail ended.
enum class RunEnd { planned, stopped };

class RunObserver {
 public:
  virtual ~RunObserver() = default;
  // Called after every step but the last; must return the same on all ranks.
  virtual BoundaryAction at_boundary(std::int64_t /*step*/) { return BoundaryAction::proceed; }
  virtual void on_samples(const SampleReport&) {}  // if TrainerOptions::reports_samples
  virtual void on_step(const StepProgress&) {}
  virtual void on_note(const std::string&) {}
  virtual void on_skipped(const SkippedReport&) {}
  virtual void on_interval(const IntervalReport&) {}
  virtual void on_digest(const DigestReport&) {}
  virtual void on_epoch(const EpochReport&) {}
  // The run ends after these two.
  virtual void on_divergence(const DivergenceReport&) {}
  virtual void on_wrong_part(const WrongPartReport&) {}
  // The state holds only the arrays of TrainerOptions::file_shard. Copying them took `copy_seconds`.
  virtual void on_checkpoint(TrainState, double /*copy_seconds*/) {}
  // The same for BoundaryAction::keep, with the arrays of TrainerOptions::kept_shard.
  virtual void on_kept(TrainState, double /*copy_seconds*/) {}
  // No work is pending on the device.
  virtual void on_epoch_end(const EpochEnd&) {}
};

}  // namespace tutti
