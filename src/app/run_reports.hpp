#pragma once
// The output of a run. Before the first step: the banner on stderr, the first record of metrics.jsonl, and the versions
// that checkpoints store. Then rank 0 prints epoch lines to stdout and progress to stderr, and writes records to
// metrics.jsonl and the sample log; states go to the checkpoints. A record that cannot be written only causes a
// warning.

#include "tutti/base/log.hpp"
#include "tutti/base/timing.hpp"
#include "tutti/comm/world.hpp"
#include "tutti/storage/atomic_file.hpp"
#include "tutti/storage/checkpoint_store.hpp"
#include "tutti/storage/folder_lock.hpp"
#include "tutti/train/lr_schedule.hpp"
#include "tutti/train/metrics_log.hpp"
#include "tutti/train/progress.hpp"
#include "tutti/train/trainer.hpp"
#include "tutti/watch/time_profile.hpp"

#include "assemble.hpp"
#include "run_control.hpp"
#include "run_folder.hpp"

#include <optional>
#include <set>
#include <string>
#include <vector>

namespace tutti {

// Prints the banner to stderr on rank 0. Collective.
void log_start(const Assembly& assembly, World& world, const Trainer& trainer, const Log& log);
// The learning rates of the last step and of the next one.
struct RateAtResume {
  double before = 0;
  double now = 0;
};
// A warning if the end of the schedule has moved, which makes the learning rate jump; else empty. It suggests the old
// end only if that leaves no epochs at a learning rate of 0.
std::string moved_schedule_text(const RunConfig& config, const LoadedCheckpoint& resumed, const RateAtResume& rate);
// A note if epochs follow the end of a cosine schedule, at the minimum learning rate; else empty.
std::string late_schedule_text(const RunConfig& config);
// One JSON object; `steps` is the number of steps done already.
std::string run_record(const Assembly& assembly, const World& world, const std::vector<std::string>& arguments,
                       std::int64_t steps);
std::string versions_text(const Backend& backend, const World& world);

// The run to report. All references and pointers are borrowed.
struct ReportedRun {
  const Assembly& assembly;
  RunControl& control;
  TimeProfile& time_profile;
  RunCheckpoints* checkpoints;  // null: the run has no folder
  const OwnedFolder& folder;
  bool resumes = false;  // else the sample log is overwritten
};

class RunOutput : public RunObserver {
 public:
  // Throws save errors.
  RunOutput(World& world, const ReportedRun& run);

  // To be called before the first step. `run_record` is one JSON object; `steps` were done already.
  void start(const std::string& run_record, std::int64_t steps);
  // To be called after the last step. Throws on all ranks if the last state could not be saved. Collective.
  void finish(RunEnd end, std::int64_t steps, std::int64_t skipped_steps);

  BoundaryAction at_boundary(std::int64_t step) override;
  void on_samples(const SampleReport& report) override;
  void on_step(const StepProgress& progress) override;
  void on_note(const std::string& text) override;
  void on_skipped(const SkippedReport& report) override;
  void on_interval(const IntervalReport& report) override;
  void on_digest(const DigestReport& report) override;
  void on_epoch(const EpochReport& report) override;
  void on_divergence(const DivergenceReport& report) override;
  void on_checkpoint(TrainState state, double copy_seconds) override;
  void on_epoch_end(const EpochEnd& end) override;

  const std::vector<EpochEnd>& epochs() const { return epochs_; }

 private:
  template <class Write>
  void record(Write write);
  void warn_of_lost_record(const Error& error);
  void record_line(const std::string& json);
  void print_time();

  World& world_;
  Log log_;
  RunControl& control_;
  RunCheckpoints* checkpoints_;
  TimeProfile& time_profile_;
  std::optional<MetricsLog> metrics_;   // on rank 0, in the run's folder
  std::optional<LineFile> sample_log_;  // on rank 0
  bool prints_lines_ = false;
  std::optional<ProgressBar> bar_;
  ProgressLines lines_;
  Stopwatch since_start_;
  TimeProfileSum time_;
  bool has_printed_time_ = false;  // of the last epoch
  bool resumes_ = false;
  std::vector<EpochEnd> epochs_;
  int classes_;
  LrPlan rate_;
  bool has_warned_ = false;          // that the network does not learn
  std::set<std::string> warned_of_;  // failures reported so far
};

}  // namespace tutti
