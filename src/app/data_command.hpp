#pragma once
// trainer data: what a data set holds and looks like, and any data set in one HDF5 file. Rank 0 works; others wait for
// it.

#include "tutti/base/exit_status.hpp"
#include "tutti/comm/world.hpp"
#include "tutti/data/open_data.hpp"

#include "command_line.hpp"

namespace tutti {

// Collective.
ExitStatus data_convert(World& world, const Invocation& invocation);
ExitStatus data_info(World& world, const Invocation& invocation);
ExitStatus data_show(World& world, const Invocation& invocation);

// For the rank that works: the request's data set, or the program's own that the configuration names, with its notes
// told.
OwnedData open_noted(const RunConfig& config, const DataRequest& request, const World& world);

}  // namespace tutti
