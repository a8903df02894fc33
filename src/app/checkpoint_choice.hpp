#pragma once
// Which checkpoint a user means who names a file, a run's folder or its folder of checkpoints. Nothing there is
// changed: the folder may be that of a run under way.

#include "tutti/base/log.hpp"
#include "tutti/checkpoint/checkpoint_store.hpp"
#include "tutti/comm/world.hpp"

#include <cstdint>
#include <string>
#include <vector>

namespace tutti {

struct JudgedCheckpoint {
  std::string path;
  std::string fault;  // empty: it is good
};

bool is_folder(const std::string& path);
// Throws a checkpoint error where there is neither file nor folder.
void refuse_missing(const std::string& path);
// The checkpoints in such a folder, each read and verified, the newest first; then those that nobody tries.
std::vector<JudgedCheckpoint> judge_checkpoints(const std::string& folder);
// The newest good one. Throws a checkpoint error when there is none.
const std::string& newest_good(const std::vector<JudgedCheckpoint>& judged, const std::string& folder);

// Of a checkpoint without a manifest.
std::string word_of_caution(const std::string& path);

// That file's, or the folder's newest good one, read by rank 0 for all. Rank 0 tells of those passed over, and says the
// word of caution. Collective.
LoadedCheckpoint load_named_checkpoint(World& world, const std::string& path, const Log& log);

// Throws, on all ranks, unless the data of this digest are those that it was trained on.
void refuse_other_data(const LoadedCheckpoint& resumed, const std::string& data, std::uint64_t digest);

}  // namespace tutti
