#pragma once
// trainer tour: data-parallel training looked at from the inside, one screen per station, on the ranks that there are.

#include "tutti/base/exit_status.hpp"
#include "tutti/comm/world.hpp"

#include "../command_line.hpp"
#include "../program.hpp"

namespace tutti {

// On rank 0's stdout. The answer is no where replicas that are to be equal were not. Collective.
ExitStatus tour_command(World& world, const Invocation& invocation, const EndRecord& record);

}  // namespace tutti
