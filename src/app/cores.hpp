#pragma once
// The processor cores that this process and its neighbours on the host may use.

#include "tutti/comm/world.hpp"

#include <cstdint>

namespace tutti {

struct Cores {
  int mine = 1;     // this process is bound to so many
  int usable = 1;   // by the ranks of this host together
  int present = 1;  // on the host
};

// Whether each thread of this host's ranks can have a core of its own.
bool has_room_for(const Cores& cores, const World& world, std::int64_t threads_a_rank);
// Collective.
Cores count_cores(World& world);
// How many threads of each rank of this host prepare batches: the cores that `compute_threads` a rank leave over,
// shared out, and at least one.
int budget_readers(const World& world, const Cores& cores, std::int64_t compute_threads);
// The cores that each rank of the most crowded host can have, one at least: the same on every rank. Collective.
int fewest_cores_per_rank(World& world, const Cores& cores);

}  // namespace tutti
