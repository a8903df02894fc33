#pragma once
// Checks whether a run can write to --out and to the files that options name.

#include "tutti/comm/world.hpp"

#include "../findings.hpp"
#include "../run_config.hpp"

#include <cstdint>
#include <string>

namespace tutti {

// Checks whether rank 0 can write there and all ranks see the result, which is needed to save in several files. Leaves
// nothing behind. Collective.
Findings check_sharing(World& world, const std::string& folder, bool saves_several_files);
// Checks whether rank 0 can write the files of --trace, --sample-log and --plan-cache. Leaves nothing behind.
// Collective.
Findings check_files(World& world, const RunConfig& config);

struct CheckpointPlan {
  std::int64_t bytes = 0;  // of each; 0: unknown
  bool is_split = false;   // into files that are saved on several hosts
  std::int64_t saves = 0;  // in the rest of the run, without those by time and of best evaluations
};
// Checks the folder of --out, the files that may be in it, and the room for checkpoints. Removes everything that it
// makes. Collective.
Findings check_out_folder(World& world, const RunConfig& config, const CheckpointPlan& checkpoints);

}  // namespace tutti
