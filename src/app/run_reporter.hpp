#pragma once
// Where a training run's reports go: by rank 0 epoch lines to stdout, everything to its recorders, its progress to
// stderr; checkpoints to those who keep them. A record that cannot be written is told of and costs the run
// nothing else.

#include "tutti/base/log.hpp"
#include "tutti/base/stopwatch.hpp"
#include "tutti/comm/world.hpp"
#include "tutti/train/lr_schedule.hpp"
#include "tutti/train/progress_bar.hpp"
#include "tutti/train/run_recorder.hpp"
#include "tutti/watch/time_account.hpp"

#include "checkpoint_keeping.hpp"
#include "run_config.hpp"
#include "run_control.hpp"

#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

namespace tutti {

// What a run of the command line has besides. Borrowed.
struct RunKeeping {
  CheckpointKeeping* checkpoints;  // null: the run has no folder
  RunControl& control;
};

class RunReporter : public RunObserver {
 public:
  // Borrowed. `keeping` is null for a run that nothing stops early. `classes`: of the network.
  RunReporter(World& world, const RunConfig& config, const RunKeeping* keeping, TimeAccount& account, int classes);

  void add(std::unique_ptr<RunRecorder> recorder) { recorders_.push_back(std::move(recorder)); }
  // Before the first step: the record of what runs, one JSON object, and how many steps were done before.
  void start(const std::string& run_record, std::int64_t steps);
  // After the last step. Throws on all ranks when the last state could not be saved. Collective.
  void finish(RunEnd end, std::int64_t steps, std::int64_t skipped_steps);

  BoundaryWish at_boundary(std::int64_t step) override;
  void on_samples(const SampleReport& report) override;
  void on_step(const StepProgress& progress) override;
  void on_note(const std::string& text) override;
  void on_skipped(const SkippedReport& report) override;
  void on_stretch(const StretchReport& report) override;
  void on_digest(const DigestReport& report) override;
  void on_epoch(const EpochReport& report) override;
  void on_divergence(const DivergenceReport& report) override;
  void on_checkpoint(TrainState state, double copy_seconds) override;
  void on_epoch_left(const EpochEnd& end) override;

  const std::vector<EpochEnd>& epochs() const { return epochs_; }

 private:
  template <class Tell>
  void record(Tell tell);
  void record_line(const std::string& json);
  bool keeps_checkpoints() const { return keeping_ != nullptr && keeping_->checkpoints != nullptr; }
  void print_time();

  World& world_;
  Log log_;
  const RunKeeping* keeping_;
  TimeAccount& account_;
  std::vector<std::unique_ptr<RunRecorder>> recorders_;
  bool prints_lines_ = false;
  std::optional<ProgressBar> bar_;
  ProgressLines lines_;
  Stopwatch since_start_;
  TimeTotal time_;
  bool has_printed_time_ = false;  // of the last epoch
  bool resumes_ = false;
  std::vector<EpochEnd> epochs_;
  int classes_;
  LrPlan rate_;
  bool has_warned_ = false;         // that the loss is that of guessing
  std::set<std::string> troubles_;  // told already
};

}  // namespace tutti
