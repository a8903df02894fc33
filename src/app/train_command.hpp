#pragma once
// trainer train: from an invocation to a trained network, its reports and its checkpoints.

#include "tutti/base/error.hpp"
#include "tutti/comm/world.hpp"

#include "command_line.hpp"
#include "process.hpp"
#include "program.hpp"

namespace tutti {

// Keeps checkpoints and stops for signals when there are `signals` (borrowed); sets record.folder once the run has a
// folder of its own. Collective.
ExitStatus train_command(World& world, const Invocation& invocation, EndRecord& record);

}  // namespace tutti
