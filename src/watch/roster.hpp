#pragma once
// Which ranks are on which host, the same on all of them.

#include "tutti/comm/world.hpp"

#include <string>
#include <vector>

namespace tutti {

struct HostRanks {
  std::string name;
  std::vector<int> ranks;  // ascending; the first is its local rank 0
};

struct Roster {
  std::vector<HostRanks> hosts;  // by their first ranks
  std::vector<std::size_t> host_of_rank;

  const HostRanks& host_of(int rank) const { return hosts[host_of_rank[static_cast<std::size_t>(rank)]]; }
};

// `first_rank` is the one of this rank's host. Collective.
Roster make_roster(World& world, int first_rank);

}  // namespace tutti
