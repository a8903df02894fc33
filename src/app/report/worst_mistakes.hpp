#pragma once
// The images of a data set that a network names wrongly and is most sure of.

#include "tutti/train/sample_scores.hpp"

#include <cstddef>
#include <cstdint>
#include <vector>

namespace tutti {

struct Mistake {
  std::int64_t sample = 0;
  std::size_t label = 0;
  std::size_t predicted = 0;
  double probability = 0;           // of what it was taken for
  double probability_of_label = 0;  // of what it is
};

class WorstMistakes {
 public:
  explicit WorstMistakes(std::size_t most) : most_(most) {}

  void add(const ChunkScores& scores);
  // No more than asked for, the surest first.
  std::vector<Mistake> sorted() const;

 private:
  std::size_t most_;
  std::vector<Mistake> heap_;  // the least sure first
};

}  // namespace tutti
