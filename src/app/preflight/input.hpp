#pragma once
// Whether images are prepared as fast as the network trains on them.

#include "tutti/comm/world.hpp"

#include "../assemble.hpp"
#include "../findings.hpp"

namespace tutti {

// Prepares and trains on a few images of the run, and warns if its readers cannot keep up. Nothing is measured of
// images that need no decoding. Collective.
Findings check_input(World& world, const PreparedRun& run, Communicator& communicator);

}  // namespace tutti
