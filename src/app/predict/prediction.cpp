#include "prediction.hpp"

#include <algorithm>
#include <numeric>
#include <span>

namespace tutti {

// By logits: different ones may give the same probability.
std::vector<RankedClass> best_classes(const ChunkScores& scores, std::size_t sample, std::size_t count) {
  const std::span<const float> logits = scores.logits_of(sample);
  std::vector<std::size_t> order(logits.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  const auto end = order.begin() + static_cast<std::ptrdiff_t>(std::min(count, order.size()));
  std::ranges::partial_sort(order, end, [logits](std::size_t a, std::size_t b) {
    return logits[a] != logits[b] ? logits[a] > logits[b] : a < b;
  });
  std::vector<RankedClass> best;
  for (auto number = order.begin(); number != end; ++number) {
    best.push_back({*number, scores.probability(sample, *number)});
  }
  return best;
}

}  // namespace tutti
