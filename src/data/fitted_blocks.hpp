#pragma once
// A set's images on their way into a file: read, decoded and fitted to one size by some threads, and handed over block
// by block in the order of the set. Blocks and what is in them do not depend on the number of threads.

#include "tutti/data/dataset.hpp"
#include "tutti/data/image_recipe.hpp"

#include "loaded_set.hpp"

#include <cstdint>
#include <functional>
#include <vector>

namespace tutti {

struct FittedBlock {
  std::vector<std::uint8_t> pixels;  // N, C, H, W
  std::vector<std::int32_t> labels;
  std::vector<std::int32_t> checksums;  // CRC-32C of each image's pixels
  std::uint64_t digest = 0;             // of the pixels: what they add to digest("images") of the whole set
  ChannelSums sums;
};

// `take` is called in the calling thread. A few blocks a thread wait in memory. Of several errors the first one in the
// order of the set is thrown, when all before it has been handed over.
struct Fitting {
  const Dataset& set;
  const ImageRecipe& recipe;  // without augmentation
  int threads = 1;
};
void for_each_block(const Fitting& fitting, const std::function<void(const FittedBlock&)>& take);

}  // namespace tutti
