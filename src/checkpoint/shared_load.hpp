#pragma once
// What one rank has read of a checkpoint, for all: a file is read once, however many ranks there are.

#include "tutti/comm/world.hpp"

#include "verification.hpp"

namespace tutti {

// Rank 0's bytes everywhere. Collective.
CheckpointBytes broadcast_checkpoint(World& world, CheckpointBytes mine);

}  // namespace tutti
