#pragma once
// The ranks of a world host by host: in this order, measurements on some of them take the first.

#include "tutti/comm/world.hpp"

#include <string>
#include <vector>

namespace tutti {

class RankOrder {
 public:
  // Seen by this rank.
  RankOrder(const std::vector<std::string>& host_of_rank, int rank);
  // Collective.
  explicit RankOrder(World& world) : RankOrder(all_gather_text(world, world.host()), world.rank()) {}

  // This rank's place in the order.
  int position() const { return position_; }
  int ranks() const { return end_of_node_.back(); }
  int nodes() const { return static_cast<int>(hosts_.size()); }
  const std::vector<std::string>& hosts() const { return hosts_; }
  // Of the first so many ranks; of the first so many nodes.
  int nodes_of(int ranks) const;
  int ranks_of(int nodes) const { return end_of_node_.at(static_cast<std::size_t>(nodes - 1)); }

  // Counts of ranks, ascending: those of `ranks` and of the whole nodes that `nodes` counts, each ascending and comma
  // separated. With neither: doubling up to a whole node, and from there by nodes. Throws a usage error.
  std::vector<int> counts(const std::string& ranks, const std::string& nodes) const;

 private:
  std::vector<std::string> hosts_;  // as they come with ascending ranks
  std::vector<int> end_of_node_;    // so many ranks are on the nodes up to this one
  int position_ = 0;
};

}  // namespace tutti
