#pragma once
// The output of a run. Before the first step: the banner on stderr, the first record of metrics.jsonl, and the versions
// that checkpoints store. Then rank 0 prints epoch lines to stdout and progress to stderr, and writes records to
// metrics.jsonl and the sample log; states go to the checkpoints. A record that cannot be written only causes a
// warning.

#include "tutti/base/log.hpp"
#include "tutti/base/timing.hpp"
#include "tutti/comm/world.hpp"
#include "tutti/storage/atomic_file.hpp"
#include "tutti/storage/checkpoint_writer.hpp"
#include "tutti/train/trainer.hpp"
#include "tutti/watch/time_profile.hpp"

#include "assemble.hpp"
#include "kept_states.hpp"
#include "metrics_log.hpp"
#include "progress.hpp"
#include "run_control.hpp"
#include "run_folder.hpp"

#include <cstdint>
#include <functional>
#include <optional>
#include <set>
#include <string>
#include <vector>

namespace tutti {

// Prints the banner to stderr on rank 0. Collective.
void log_start(const Assembly& assembly, World& world, const Trainer& trainer, const Log& log);
std::string versions_text(const Backend& backend, const World& world);

// The run to report. All references and pointers are borrowed.
struct ReportedRun {
  const Assembly& assembly;
  RunControl& control;
  TimeProfile& time_profile;
  const RunFolder* folder;  // null: nothing is saved
  const KeptStates* kept;   // of a run with a folder
  bool keeps_states;        // this launch keeps some, too
  const std::vector<std::string>& arguments;
  const std::vector<std::string>& hosts;  // by rank
  std::string resumed_from{};             // the path of a checkpoint or kept state; empty: a new run
  std::int64_t steps_done = 0;            // 0: a new run, which overwrites the sample log
};

class RunOutput : public RunObserver {
 public:
  // To be made before the first step: writes the first record. Throws save errors.
  RunOutput(World& world, const ReportedRun& run);

  // To be called after the last step. Throws on all ranks if the last state could not be saved. Collective.
  void finish(RunEnd end, const Trainer& trainer);

  BoundaryAction at_boundary(std::int64_t step) override;
  void on_samples(const SampleReport& report) override;
  void on_step(const StepProgress& progress) override;
  void on_note(const std::string& text) override;
  void on_skipped(const SkippedReport& report) override;
  void on_interval(const IntervalReport& report) override;
  void on_digest(const DigestReport& report) override;
  void on_epoch(const EpochReport& report) override;
  void on_divergence(const DivergenceReport& report) override;
  // Also writes exit.json, with the host, before all ranks end.
  void on_wrong_part(const WrongPartReport& report) override;
  void on_checkpoint(TrainState state, double copy_seconds) override;
  void on_kept(TrainState state, double copy_seconds) override;
  void on_epoch_end(const EpochEnd& end) override;

  const std::vector<EpochEnd>& epochs() const { return epochs_; }

 private:
  void record(const std::function<void()>& write);
  void record_line(const std::string& json);
  void print_time();
  InputRates rates_of(const TimeReport& time, std::int64_t images) const;
  void print_times(const TimeReport& time, const InputRates& input, const char* of_what = "");
  void report_saves();
  void report_save(const SaveReport& report);
  void finish_saves();
  void report_kept();
  void finish_kept();

  // How long a checkpoint has paused the training.
  struct Stall {
    std::int64_t step = 0;
    double seconds = 0;
  };

  World& world_;
  const ReportedRun run_;
  Log log_;
  std::optional<MetricsLog> metrics_;   // on rank 0, in the run's folder
  std::optional<LineFile> sample_log_;  // on rank 0
  std::optional<CheckpointWriter> writer_;
  std::vector<Stall> stalls_;
  std::vector<double> good_saves_;          // seconds
  std::int64_t saved_bytes_ = 0;            // of the last good save
  std::string last_failure_;                // to save
  std::int64_t keep_steps_ = 0;             // 0: never, or when the run control says so
  std::optional<CheckpointWriter> keeper_;  // on the rank of each host that keeps the state
  std::string launch_;                      // the hash of this launch's record; on other ranks after the first step
  std::vector<double> kept_pauses_;         // seconds
  bool prints_lines_ = false;
  std::optional<ProgressBar> bar_;
  ProgressLines lines_;
  Stopwatch since_start_;
  TimeProfileSum time_;
  std::int64_t images_ = 0;         // trained on since the launch
  std::int64_t images_before_ = 0;  // at the last end of an epoch
  bool has_printed_time_ = false;   // of the last epoch
  std::vector<EpochEnd> epochs_;
  std::set<std::string> warned_of_;  // what was warned of so far
};

}  // namespace tutti
