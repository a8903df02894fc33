#pragma once
// trainer eval: how good a checkpoint is on a data set, every sample counted once.

#include "tutti/base/exit_status.hpp"
#include "tutti/comm/world.hpp"

#include "command_line.hpp"
#include "program.hpp"

namespace tutti {

// Network, image size and normalisation are the checkpoint's; the data may be given anew. Collective.
ExitStatus eval_command(World& world, const Invocation& invocation, const EndRecord& record);

}  // namespace tutti
