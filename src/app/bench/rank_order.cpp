#include "rank_order.hpp"

#include "resolve_options.hpp"

#include <algorithm>
#include <set>

namespace tutti {

RankOrder::RankOrder(const std::vector<std::string>& host_of_rank, int rank) {
  for (const std::string& host : host_of_rank) {
    if (std::ranges::find(hosts_, host) == hosts_.end()) hosts_.push_back(host);
  }
  int placed = 0;
  for (const std::string& host : hosts_) {
    for (std::size_t other = 0; other < host_of_rank.size(); ++other) {
      if (host_of_rank[other] != host) continue;
      if (static_cast<int>(other) == rank) position_ = placed;
      ++placed;
    }
    end_of_node_.push_back(placed);
  }
}

int RankOrder::nodes_of(int ranks) const {
  return 1 + static_cast<int>(std::ranges::lower_bound(end_of_node_, ranks) - end_of_node_.begin());
}

std::vector<int> RankOrder::counts(const std::string& ranks, const std::string& nodes) const {
  std::set<int> all;
  const bool neither = ranks.empty() && nodes.empty();
  if (neither) {
    for (const int count : parse_rank_counts("", ranks_of(1))) all.insert(count);
  }
  if (!ranks.empty()) {
    for (const int count : parse_rank_counts(ranks, this->ranks())) all.insert(count);
  }
  if (neither || !nodes.empty()) {
    for (const int count : parse_counts("nodes", nodes, this->nodes())) all.insert(ranks_of(count));
  }
  return {all.begin(), all.end()};
}

}  // namespace tutti
