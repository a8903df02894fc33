#pragma once
// trainer diff: whether two runs or checkpoints hold the same, and where they part. Rank 0 works; others wait for it.

#include "tutti/base/exit_status.hpp"
#include "tutti/comm/world.hpp"

#include "command_line.hpp"

namespace tutti {

// The answer is no where they differ. Collective.
ExitStatus diff_command(World& world, const Invocation& invocation);

}  // namespace tutti
