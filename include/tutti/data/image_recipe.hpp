#pragma once
// Preprocessing of an image between the data set and the network: crop, resize, flip, scale to [0, 1], normalize. A
// pure function of (seed, epoch, sample), independent of the number of ranks and threads.

#include "tutti/base/enum_names.hpp"
#include "tutti/base/shape.hpp"
#include "tutti/data/dataset.hpp"

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace tutti {

// Augmentation of training images; test images are only fitted to the size.
//   none           fitted to the size, like test images
//   crop-flip      resized to 5/4 of the size, a random square of 0.64 to 1.0 of that area resized to the size, flip
//   pad-crop-flip  padded with 1/8 of the size in zeros, a random square of the size, flip
//   resized-crop   a random crop of 0.08 to 1.0 of the area, 3:4 to 4:3, resized to the size, flip
// A flip is horizontal, with probability 1/2. Fitting: an image of the right size is not changed; of any other, the
// short side is resized to 8/7 of the size and the center is cropped.
enum class Augment { none, crop_flip, pad_crop_flip, resized_crop };
constexpr std::array<std::string_view, 4> enum_names(Augment) {
  return {"none", "crop-flip", "pad-crop-flip", "resized-crop"};
}

struct ImageRecipe {
  Augment augment = Augment::none;
  Shape image;                   // the network's input, C, N, N; a scalar: the data's C, H, W
  ChannelStatistics statistics;  // (pixel / 255 - mean) / deviation; empty: pixel / 255
  std::uint64_t seed = 0;
};

// A recipe for training with this image size (0: the data's). `normalize` is none, auto (the data set's own statistics)
// or M/S, each one number or one per channel separated by commas.
struct RecipeRequest {
  Augment augment = Augment::none;
  std::string normalize;
  std::int64_t image_size = 0;
  std::uint64_t seed = 0;
};
// Throws usage errors: images that differ in size or are not square although squares are required, unknown statistics,
// a standard deviation of 0.
ImageRecipe make_recipe(const RecipeRequest& request, const DatasetInfo& data);
// As above, but `auto` computes the statistics of a data set that is in memory and has none.
ImageRecipe make_recipe(const RecipeRequest& request, const Dataset& data);
// The value of `normalize` that gives exactly these statistics for any data.
std::string normalize_text(const ChannelStatistics& statistics);

}  // namespace tutti
