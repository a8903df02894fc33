#pragma once
// The part of `trainer check` that costs next to nothing: before every training.

#include "tutti/base/log.hpp"
#include "tutti/comm/world.hpp"

#include "../run_config.hpp"
#include "finding.hpp"

#include <string>

namespace tutti {

// What can be found out before anything is opened. Collective.
Findings preflight_in_brief(World& world, const RunConfig& config);
// Warns, also where quiet is asked for; throws the first of what dooms the run, on all ranks. Collective.
void refuse_or_tell(World& world, const Findings& findings, const Log& log);

}  // namespace tutti
