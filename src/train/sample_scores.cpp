#include "tutti/train/sample_scores.hpp"

#include <cmath>

namespace tutti {

double ChunkScores::probability(std::size_t i, std::size_t of_class) const {
  const std::span<const float> all = logits_of(i);
  const double greatest = all[static_cast<std::size_t>(samples[i].predicted)];
  return std::exp(all[of_class] - greatest) / samples[i].exponentials;
}

}  // namespace tutti
