#pragma once
// trainer report: one page of what a run came to, for people. Rank 0 writes it; all ranks name the images of its newest
// checkpoint.

#include "tutti/base/exit_status.hpp"
#include "tutti/comm/world.hpp"

#include "../command_line.hpp"
#include "../program.hpp"

namespace tutti {

// A checkpoint or data that are not at hand are told of in the page, and cost it nothing else. Collective.
ExitStatus report_command(World& world, const Invocation& invocation, const EndRecord& record);

}  // namespace tutti
