#pragma once
// trainer data: what a data set holds, and any data set in one HDF5 file. Rank 0 works; others wait for it.

#include "tutti/base/exit_status.hpp"
#include "tutti/comm/world.hpp"

#include "command_line.hpp"

namespace tutti {

// Collective.
ExitStatus data_convert(World& world, const Invocation& invocation);
ExitStatus data_info(World& world, const Invocation& invocation);

}  // namespace tutti
