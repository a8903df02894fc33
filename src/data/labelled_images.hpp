#pragma once
// What every reader and generator returns: all images of a set, one after another, and one label for each.
// Plain values; MemoryDataset checks them and makes a data set of them.

#include "tutti/base/shape.hpp"

#include <cstdint>
#include <string>
#include <vector>

namespace tutti {

// A file that the labels of some samples, one after another, were read from.
struct LabelFile {
  std::string path;
  std::int64_t samples = 0;
};

struct LabelledImages {
  Shape image;  // C, H, W
  std::vector<std::uint8_t> images;
  std::vector<std::int32_t> labels;
  std::vector<LabelFile> label_files{};  // in the order of the samples; empty for drawn images and data files
};

}  // namespace tutti
