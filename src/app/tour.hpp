#pragma once
// trainer tour: one data-parallel step, written by hand with the public classes, shown on the ranks of this job.

#include "tutti/base/exit_status.hpp"
#include "tutti/comm/world.hpp"

#include "command_line.hpp"
#include "program.hpp"

namespace tutti {

// Prints on rank 0's stdout. The answer is no where values that must be equal were not. Collective.
ExitStatus tour_command(World& world, const Invocation& invocation, const EndRecord& record);

}  // namespace tutti
