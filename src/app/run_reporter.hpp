#pragma once
// Where a training run's reports go: epoch lines to stdout, records to OUT/metrics.jsonl and samples to their log by
// rank 0, a progress bar to its terminal, checkpoints to those who keep them. A record that cannot be written is told
// of and costs the run nothing else.

#include "tutti/base/log.hpp"
#include "tutti/comm/world.hpp"
#include "tutti/storage/line_file.hpp"
#include "tutti/train/metrics_log.hpp"
#include "tutti/train/progress_bar.hpp"
#include "tutti/train/run_observer.hpp"
#include "tutti/watch/time_account.hpp"

#include "checkpoint_keeping.hpp"
#include "run_config.hpp"
#include "run_control.hpp"

#include <optional>
#include <set>
#include <string>
#include <vector>

namespace tutti {

// What a run that keeps something has besides. Borrowed.
struct RunKeeping {
  CheckpointKeeping& checkpoints;
  RunControl& control;
};

// Whether the user wants a progress bar, and has a terminal for it.
bool wants_bar(const RunConfig& config);

class RunReporter : public RunObserver {
 public:
  // Borrowed. `keeping` is null for a run that keeps nothing.
  RunReporter(World& world, const RunConfig& config, const RunKeeping* keeping, TimeAccount& account);

  // The first record of the run.
  void start(const std::string& run_record);
  // After the last step. Throws on all ranks when the last state could not be saved. Collective.
  void finish(std::int64_t skipped_steps);

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
  template <class Write>
  void recording(Write write);
  template <class Report>
  void record(const Report& report);
  void record_line(const std::string& json);

  World& world_;
  Log log_;
  const RunKeeping* keeping_;
  TimeAccount& account_;
  std::optional<MetricsLog> metrics_;
  std::optional<LineFile> samples_;
  std::optional<ProgressBar> bar_;
  std::vector<EpochEnd> epochs_;
  std::set<std::string> troubles_;  // told already
};

}  // namespace tutti
