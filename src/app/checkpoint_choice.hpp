#pragma once
// Finds the checkpoint that a user names by a file, a run's folder, its folder of checkpoints, or the checkpoint of the
// best evaluation or of one step in such a folder (RUN@best, RUN@120). Nothing is changed there: the run may be active.

#include "tutti/base/log.hpp"
#include "tutti/comm/world.hpp"
#include "tutti/storage/checkpoint_store.hpp"

#include "run_config.hpp"

#include <string>
#include <vector>

namespace tutti {

struct CheckedCheckpoint {
  std::string path;
  std::string problem;  // empty if it is good
};

// Throws a checkpoint error if there is neither a file nor a folder.
void refuse_missing(const std::string& path);
// Returns the file that RUN@best or RUN@STEP names; other names are returned as they are. Throws a checkpoint error if
// the run has no such checkpoint.
std::string checkpoint_path(const std::string& reference);
// Reads and verifies the checkpoints in such a folder, the newest first. At the end come those that a resume skips.
std::vector<CheckedCheckpoint> check_checkpoints(const std::string& folder);
// The newest good one. Throws a checkpoint error if there is none.
const std::string& newest_good(const std::vector<CheckedCheckpoint>& checked, const std::string& folder);

// Loads that file, or the folder's newest good checkpoint; rank 0 reads it for all ranks. It logs which one it chose,
// and which ones it skipped. Collective.
LoadedCheckpoint load_named_checkpoint(World& world, const std::string& reference, const Log& log);

// The same for --init-from, which also takes state dicts of torchvision's networks. Collective.
LoadedCheckpoint load_initial_weights(World& world, const std::string& reference, const Log& log);

// A line that names RUN@best, if the loaded checkpoint of that run has not the best evaluation; else empty. Reads the
// newest checkpoint if that is another one.
std::string better_checkpoint_text(const LoadedCheckpoint& loaded);

// The network of the weights that another run starts from. Stores its name in the run's options.
NetworkSpec model_of(const LoadedCheckpoint& weights, RunConfig& config);

}  // namespace tutti
