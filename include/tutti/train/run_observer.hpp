#pragma once
// What a run tells while it goes on, and to whom. The trainer calls these on every rank with equal arguments but for
// times; what is printed, written or ignored is the observer's business.

#include "tutti/backend/layer.hpp"
#include "tutti/checkpoint/train_state.hpp"

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

namespace tutti {

// The whole epoch, or the stretch of it that a run ended by --steps has seen.
struct EpochReport {
  std::int64_t epoch = 0;   // counted from 1
  std::int64_t epochs = 0;  // planned
  std::int64_t step = 0;    // steps done in the run
  LossSums train{};
  std::optional<LossSums> test{};
  double seconds = 0;        // of training alone
  double test_seconds = 0;   // of the evaluation, the last thing before this report
  double learning_rate = 0;  // of the last step
  std::uint64_t weights_digest = 0;
  // How often a step was computed again because a gradient was too large for its grid (--exchange exact).
  std::int64_t redone_steps = 0;

  double images_per_second() const { return seconds > 0 ? static_cast<double>(train.samples) / seconds : 0; }
};

// The whole epoch, or the stretch of it that a run has seen, with its evaluation and its checkpoint.
struct EpochEnd {
  std::int64_t epoch = 0;  // counted from 1
  std::int64_t step = 0;   // steps done in the run
};

// The steps since the last such report.
struct StretchReport {
  std::int64_t step = 0;
  LossSums train{};
  double learning_rate = 0;
};

struct DigestReport {
  std::int64_t step = 0;
  std::uint64_t weights = 0;
  std::uint64_t gradients = 0;
  std::uint64_t optimizer = 0;
  std::optional<std::uint64_t> statistics{};  // of a network that has any
};

struct StepProgress {
  std::int64_t epoch = 0;  // counted from 1
  std::int64_t epochs = 0;
  std::int64_t step_in_epoch = 0;  // done
  std::int64_t steps_in_epoch = 0;
  std::int64_t step = 0;  // done in the run
  std::int64_t steps = 0;
  std::int64_t samples = 0;  // of this step, over all parts
  // The loss of this rank's parts in the steps since it was last asked for, of this epoch. Waits for the processor, so
  // it is called now and then, never at every step. No collective.
  std::function<LossSums()> rank_loss{};
};

// The samples of one global batch, part by part.
struct SampleReport {
  std::int64_t step = 0;   // steps done in the run, this one included
  std::int64_t epoch = 0;  // counted from 1
  std::vector<std::vector<std::int64_t>> parts;
};

// Replicas that should be equal are not, after so many steps of the run.
struct DivergenceReport {
  std::int64_t step = 0;
  std::optional<std::int64_t> equal_after{};  // steps; none: they never were
  std::vector<std::string> tensors{};         // that differ: as in a checkpoint, with their group
  std::vector<int> ranks{};                   // that hold them otherwise than most; all, where most do not agree
  std::string text;                           // all of this in words
};

// A step that has changed nothing, since a loss or gradient in it was not finite.
struct SkippedReport {
  std::int64_t step = 0;
  int rank = 0;             // the first that met it
  std::string tensor;       // "conv1/weight": a weight's or a gradient's; or "loss"
  std::string finding;      // in words
  std::int64_t in_all = 1;  // such steps of the run by now
};

// What the run is to do after a step besides what its options say.
enum class BoundaryWish { go_on, save, save_and_stop };

// How a run that did not fail came to its end.
enum class RunEnd { planned, stopped };

class RunObserver {
 public:
  virtual ~RunObserver() = default;
  // Asked after every step but the last; all ranks answer alike.
  virtual BoundaryWish at_boundary(std::int64_t /*step*/) { return BoundaryWish::go_on; }
  virtual void on_samples(const SampleReport&) {}  // of options that ask for it
  virtual void on_step(const StepProgress&) {}
  virtual void on_note(const std::string&) {}
  virtual void on_skipped(const SkippedReport&) {}
  virtual void on_stretch(const StretchReport&) {}
  virtual void on_digest(const DigestReport&) {}
  virtual void on_epoch(const EpochReport&) {}
  // The run ends after it.
  virtual void on_divergence(const DivergenceReport&) {}
  // The state's arrays are those of TrainerOptions::file_share alone. Copying it took so long.
  virtual void on_checkpoint(TrainState, double /*copy_seconds*/) {}
  // Nothing is under way on the processor.
  virtual void on_epoch_left(const EpochEnd&) {}
};

}  // namespace tutti
