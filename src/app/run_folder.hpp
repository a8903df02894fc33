#pragma once
// The folder of a run, --out: created and locked for this job. It gets the checkpoints, and exit.json if the
// run ends early.

#include "tutti/base/error.hpp"
#include "tutti/base/log.hpp"
#include "tutti/comm/world.hpp"
#include "tutti/nn/network.hpp"
#include "tutti/storage/checkpoint_store.hpp"
#include "tutti/storage/folder_lock.hpp"
#include "tutti/watch/stall_watch.hpp"

#include "run_config.hpp"

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace tutti {

// The files in a run's folder, `out`.
inline std::string checkpoints_folder(const std::string& out) { return out + "/checkpoints"; }
inline std::string options_file(const std::string& out) { return out + "/config.toml"; }
inline std::string exit_record_file(const std::string& out) { return out + "/exit.json"; }

class RunFolder {
 public:
  // Creates the folder of --out, locks it while this exists, and removes leftovers of killed jobs. Throws the same
  // error on all ranks if that fails, or if the folder holds checkpoints and the run does not resume. Collective.
  RunFolder(World& world, const RunConfig& config, const Log& log);

  CheckpointStore store;
  OwnedFolder owned;

 private:
  std::optional<FolderLock> lock_;  // on rank 0
};

// Throws a save error if the folder cannot be made.
void make_run_folder(const RunConfig& config, const std::string& folder);
// Throws an input error if the folder holds checkpoints and the run does not resume.
void refuse_old_checkpoints(const RunConfig& config, const CheckpointStore& store);
// A warning if a run of another network or data set left its records, but no checkpoint, in the folder of this new run.
std::string other_run_text(const RunConfig& config);

// Why a run ended early, written by the first rank to fail, since launchers hide exit statuses.
struct ExitRecord {
  ExitStatus status = ExitStatus::internal;
  int rank = 0;
  std::string host{};
  std::string reason{};
  std::vector<std::string> exclude{};                 // hosts that computed wrong results
  std::optional<std::int64_t> last_confirmed_step{};  // the last step whose checkpoint they cannot have made wrong
  std::optional<StepPhase> at{};                      // the phase and step of that rank
};

// Writes exit.json if there is none yet. Best effort: the error was printed to stderr already, and this must not fail
// as well. Does nothing without a folder, or if it no longer belongs to the run.
void write_exit_record(const OwnedFolder& folder, const ExitRecord& record);

// An upper bound for every optimizer, from which the number of files follows; estimate_memory() has the size for the
// run's own optimizer.
std::size_t max_state_bytes(const Network& network);

}  // namespace tutti
