#pragma once
// The predictions that trainer predict prints for an image.

#include "tutti/train/evaluation.hpp"

#include <cstddef>
#include <vector>

namespace tutti {

struct RankedClass {
  std::size_t number = 0;
  double probability = 0;
};

// The `count` most probable classes of a sample. Ties go to the lower number.
std::vector<RankedClass> best_classes(const ChunkScores& scores, std::size_t sample, std::size_t count);

}  // namespace tutti
