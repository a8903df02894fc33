#pragma once
// trainer sweep: short trainings inside one launch, one for each combination of what was given lists of. Nothing of
// them is kept but their figures.

#include "tutti/base/exit_status.hpp"
#include "tutti/comm/world.hpp"

#include "../command_line.hpp"
#include "../program.hpp"

namespace tutti {

// A combination that fails costs its row alone. Throws on all ranks when none could be trained. Collective.
ExitStatus sweep_command(World& world, const Invocation& invocation, const EndRecord& record);

}  // namespace tutti
