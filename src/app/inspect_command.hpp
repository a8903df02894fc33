#pragma once
// trainer inspect: what a checkpoint holds, and which of a folder's checkpoints are good. Rank 0 works; others wait.

#include "tutti/base/exit_status.hpp"
#include "tutti/comm/world.hpp"

#include "command_line.hpp"

namespace tutti {

// Everything read is verified first. Collective.
ExitStatus inspect_command(World& world, const Invocation& invocation);

}  // namespace tutti
