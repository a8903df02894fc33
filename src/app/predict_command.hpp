#pragma once
// trainer predict: what a checkpoint's network takes images for.

#include "tutti/base/exit_status.hpp"
#include "tutti/comm/world.hpp"

#include "command_line.hpp"
#include "program.hpp"

namespace tutti {

// Network, image size and normalisation are the checkpoint's. The same rows on any number of ranks. Collective.
ExitStatus predict_command(World& world, const Invocation& invocation, const EndRecord& record);

}  // namespace tutti
