#include "roster.hpp"

#include <fmt/format.h>

#include <map>
#include <string>

namespace tutti {

Roster make_roster(World& world, int first_rank) {
  const auto all = all_gather_text(world, fmt::format("{} {}", first_rank, world.host()));
  Roster roster;
  std::map<int, std::size_t> host_of_first;
  for (std::size_t rank = 0; rank < all.size(); ++rank) {
    const std::size_t blank = all[rank].find(' ');
    const auto [at, is_new] = host_of_first.try_emplace(std::stoi(all[rank]), roster.hosts.size());
    if (is_new) roster.hosts.push_back({.name = all[rank].substr(blank + 1), .ranks = {}});
    roster.hosts[at->second].ranks.push_back(static_cast<int>(rank));
    roster.host_of_rank.push_back(at->second);
  }
  return roster;
}

}  // namespace tutti
