#pragma once
// What every reader and generator returns: all images of a set, one after another, and one label for each.
// Plain values; MemoryDataset checks them and makes a data set of them.

#include "tutti/base/shape.hpp"

#include <cstdint>
#include <vector>

namespace tutti {

struct LabelledImages {
  Shape image;  // C, H, W
  std::vector<std::uint8_t> images;
  std::vector<std::int32_t> labels;
};

}  // namespace tutti
