#pragma once
// Whether --out, and the files that options name, will take what a run keeps there.

#include "tutti/comm/world.hpp"
#include "tutti/storage/checkpoint_store.hpp"

#include "../run_config.hpp"
#include "findings.hpp"

#include <cstdint>
#include <string>

namespace tutti {

// Throws a save error when the folder cannot be made.
void make_run_folder(const RunConfig& config, const std::string& folder);
// Throws an input error when the folder holds checkpoints and the run is no resume.
void refuse_old_checkpoints(const RunConfig& config, const CheckpointStore& store);
// Whether rank 0 can write there, and all ranks see it; a run that saves in several files needs that. Leaves nothing
// behind. Collective.
Findings check_sharing(World& world, const std::string& folder, bool saves_several_files);
// Whether rank 0 can write what --trace, --sample-log and --plan-cache name. Leaves nothing behind. Collective.
Findings check_files(World& world, const RunConfig& config);

struct CheckpointPlan {
  std::int64_t bytes = 0;  // of each; 0: unknown
  bool is_split = false;   // into several files, made on several hosts
  std::int64_t saves = 0;  // in what is left of the run, besides those by the clock and of best evaluations
};
// Everything about config.out, and files that may lie there, as a run would find it. What this makes is removed again.
// Collective.
Findings check_out_folder(World& world, const RunConfig& config, const CheckpointPlan& checkpoints);

}  // namespace tutti
