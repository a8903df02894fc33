#pragma once
// A watcher's views of ranks, for tests of its conclusions.

#include "watch/job_view.hpp"

#include <string_view>
#include <vector>

namespace tutti::test {

// Ranks of one host that wait for a collective of step 17.
inline std::vector<RankView> waiting_ranks(std::size_t count, std::string_view host = "n1") {
  std::vector<RankView> ranks(count);
  for (std::size_t i = 0; i < count; ++i) {
    ranks[i].host = host;
    ranks[i].state = {.rank = static_cast<std::int32_t>(i),
                      .phase = Phase::waiting,
                      .step = 17,
                      .begun = 90,
                      .done = 89,
                      .activity = Activity::idle};
  }
  return ranks;
}

}  // namespace tutti::test
