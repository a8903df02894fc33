#pragma once
// The processor cores that this process and its neighbours on the host may use.

#include "tutti/comm/world.hpp"

namespace tutti {

struct Cores {
  int mine = 1;     // this process is bound to so many
  int usable = 1;   // by the ranks of this host together
  int present = 1;  // on the host
};

// Collective.
Cores count_cores(World& world);
// The cores that each rank of the most crowded host can have, one at least: the same on every rank. Collective.
int fewest_cores_per_rank(World& world, const Cores& cores);

}  // namespace tutti
