#pragma once
// Where a training run's reports go: epoch lines to stdout and records to OUT/metrics.jsonl by rank 0, a progress bar
// to its terminal, checkpoints to the store.

#include "tutti/base/log.hpp"
#include "tutti/checkpoint/checkpoint_store.hpp"
#include "tutti/comm/world.hpp"
#include "tutti/train/metrics_log.hpp"
#include "tutti/train/progress_bar.hpp"
#include "tutti/train/run_observer.hpp"

#include "run_config.hpp"

#include <optional>
#include <string>

namespace tutti {

class RunReporter : public RunObserver {
 public:
  // Borrowed. `store` is null for a run that keeps nothing.
  RunReporter(World& world, const RunConfig& config, const CheckpointStore* store);

  // The first record of the run.
  void start(const std::string& run_record);

  void on_step(const StepProgress& progress) override;
  void on_note(const std::string& text) override;
  void on_stretch(const StretchReport& report) override;
  void on_digest(const DigestReport& report) override;
  void on_epoch(const EpochReport& report) override;
  void on_checkpoint(TrainState state) override;

 private:
  World& world_;
  Log log_;
  const CheckpointStore* store_;
  std::optional<MetricsLog> metrics_;
  std::optional<ProgressBar> bar_;
};

}  // namespace tutti
