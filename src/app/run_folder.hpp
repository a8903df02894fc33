#pragma once
// The folder of a run, --out: created and locked for this job. It gets the checkpoints, and exit.json if the
// run ends early.

#include "tutti/base/error.hpp"
#include "tutti/base/log.hpp"
#include "tutti/comm/world.hpp"
#include "tutti/nn/network.hpp"
#include "tutti/storage/checkpoint_writer.hpp"
#include "tutti/storage/folder_lock.hpp"
#include "tutti/watch/stall_watch.hpp"

#include "run_config.hpp"
#include "run_control.hpp"

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

namespace tutti {

class RunFolder {
 public:
  // Creates config.out, locks it while this exists, and removes leftovers of killed jobs. Throws the same error on all
  // ranks if that fails, or if the folder holds checkpoints and the run does not resume. Collective.
  RunFolder(World& world, const RunConfig& config, const Log& log);

  const CheckpointStore& store() const { return store_; }
  // Valid on all ranks.
  const OwnedFolder& owned() const { return owned_; }

 private:
  CheckpointStore store_;
  std::optional<FolderLock> lock_;  // on rank 0
  OwnedFolder owned_;
};

// Why a run ended early, written by the first rank to fail, since launchers hide exit statuses.
struct ExitRecord {
  ExitStatus status = ExitStatus::internal;
  int rank = 0;
  std::string host{};
  std::string reason{};
  std::optional<StepPhase> at{};  // the phase and step of that rank
};

// Writes exit.json if there is none yet. Best effort: the error was printed to stderr already, and this must not fail
// as well. Does nothing without a folder, or if it no longer belongs to the run.
void write_exit_record(const OwnedFolder& folder, const ExitRecord& record);

// An upper bound: parameters, at most two moments per parameter, and texts.
std::size_t max_state_bytes(const Network& network);
// The share of a state of this size that this rank saves; most ranks save nothing. Collective.
std::optional<FileShard> file_shard(World& world, std::size_t state_bytes);

// The checkpoints of one run: copied at step boundaries, saved in the background, and reported.
class RunCheckpoints {
 public:
  // Receives a JSON line for every attempt, before anything is printed.
  using Record = std::function<void(const std::string& json)>;

  // The references are borrowed.
  RunCheckpoints(World& world, const RunConfig& config, const CheckpointStore& store, std::optional<FileShard> share,
                 RunControl& control);

  // Starts to save a state. Training has already paused `copy_seconds` to copy it.
  void save(TrainState state, double copy_seconds);
  // Records the saves since the last call, and logs failures.
  void report(const Record& record);
  // Waits until the newest state is saved, and logs the cost of the checkpoints. Throws a save error on all ranks if it
  // cannot be saved. Collective.
  void finish(const Record& record);

 private:
  struct Stall {
    std::int64_t step = 0;
    double seconds = 0;
  };

  void report_save(const SaveReport& report, const Record& record);
  double stall_at(std::int64_t step) const;
  void log_cost() const;

  World& world_;
  Log log_;
  RunControl& control_;
  std::string folder_;
  std::optional<CheckpointWriter> writer_;
  std::vector<Stall> stalls_;
  std::vector<double> good_saves_;  // seconds
  std::int64_t bytes_ = 0;          // of the last good save
  std::string last_failure_;
};

}  // namespace tutti
