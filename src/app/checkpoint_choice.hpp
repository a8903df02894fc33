#pragma once
// Which checkpoint a user means who names a file, a run's folder, its folder of checkpoints, or in such a folder the
// checkpoint of the best evaluation or of one step (RUN@best, RUN@120). Nothing there is changed: the folder may be
// that of a run under way.

#include "tutti/base/log.hpp"
#include "tutti/comm/world.hpp"
#include "tutti/nn/network.hpp"
#include "tutti/storage/checkpoint_store.hpp"

#include "run_config.hpp"

#include <cstdint>
#include <string>
#include <vector>

namespace tutti {

struct CheckedCheckpoint {
  std::string path;
  std::string fault;  // empty: it is good
};

bool is_folder(const std::string& path);
// Throws a checkpoint error where there is neither file nor folder.
void refuse_missing(const std::string& path);
// The file that RUN@best or RUN@STEP names, or else the name itself. Throws a checkpoint error where there is none.
std::string checkpoint_path(const std::string& named);
// The folder in it, without reading anything.
std::string run_folder_of(const std::string& named);
// The checkpoints in such a folder, each read and verified, the newest first; then those that nobody tries.
std::vector<CheckedCheckpoint> check_checkpoints(const std::string& folder);
// The newest good one. Throws a checkpoint error when there is none.
const std::string& newest_good(const std::vector<CheckedCheckpoint>& checked, const std::string& folder);

// That file's, or the folder's newest good one, read by rank 0 for all. Rank 0 reports which one it is and those passed
// over. Collective.
LoadedCheckpoint load_named_checkpoint(World& world, const std::string& named, const Log& log);

// The network of weights that another run begins with; its name goes into the run's options.
NetworkSpec model_of(const LoadedCheckpoint& weights, RunConfig& config);

}  // namespace tutti
