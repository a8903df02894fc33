#pragma once
// A data set as the run's newest good checkpoint names its images.

#include "tutti/backend/layer.hpp"

#include "../confusion.hpp"
#include "worst_mistakes.hpp"

#include <cstdint>
#include <string>
#include <variant>
#include <vector>

namespace tutti {

// Of one of the worst mistakes.
struct MistakePicture {
  Mistake mistake;
  std::string address;  // of the image, as data_address() has it
};

struct ScoredSet {
  std::string checkpoint;  // its file's name
  std::int64_t step = 0;
  std::string set;   // test or train
  std::string data;  // as --data named it
  Confusion confusion;
  LossSums sums;
  bool has_pictures = true;  // false: they were not asked for
  std::vector<MistakePicture> pictures{};
};

using ScoresOrReason = std::variant<ScoredSet, std::string>;

}  // namespace tutti
