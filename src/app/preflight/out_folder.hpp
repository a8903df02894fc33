#pragma once
// Whether --out will take what a run keeps there.

#include "tutti/checkpoint/checkpoint_store.hpp"
#include "tutti/comm/world.hpp"

#include "../run_config.hpp"
#include "finding.hpp"

#include <cstdint>
#include <string>

namespace tutti {

// Throws a save error when the folder cannot be made.
void make_run_folder(const RunConfig& config, const std::string& folder);
// Throws an input error when the folder holds checkpoints and the run is no resume.
void refuse_old_checkpoints(const RunConfig& config, const CheckpointStore& store);
// Whether rank 0 can write there, and all ranks see it; a run that saves in several files needs that. Leaves nothing
// behind. Collective.
Findings judge_sharing(World& world, const std::string& folder, bool saves_several_files);
// Everything about config.out, and a trace that may lie there, as a run would find it. What this makes is removed
// again. Collective.
Findings judge_out_folder(World& world, const RunConfig& config, std::int64_t checkpoint_bytes);

}  // namespace tutti
