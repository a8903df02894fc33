#pragma once
// What happens to an image between the data set and the network: cropped, resized, flipped, scaled to [0, 1] and
// normalised. A pure function of (seed, epoch, sample), equal at any number of ranks and threads.

#include "tutti/base/shape.hpp"
#include "tutti/base/words.hpp"
#include "tutti/data/dataset.hpp"

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace tutti {

// Of training images; test images are only fitted to the size.
//   none           fitted to the size as test images are
//   crop-flip      resized to 5/4 of the size, a random square of 0.64 to 1.0 of that area resized to the size, flip
//   pad-crop-flip  framed by 1/8 of the size in zeros, a random square of the size, flip
//   resized-crop   a random crop of 0.08 to 1.0 of the area, 3:4 to 4:3, resized to the size, flip
// A flip is left to right for one image in two. Fitting: an image of the right size is left alone; of any other, the
// short side is resized to 8/7 of the size and the centre is cropped.
enum class Augment { none, crop_flip, pad_crop_flip, resized_crop };
constexpr std::array<std::string_view, 4> words_of(Augment) {
  return {"none", "crop-flip", "pad-crop-flip", "resized-crop"};
}

struct ImageRecipe {
  Augment augment = Augment::none;
  Shape image;                   // C, N, N: what the network gets; a scalar: the data's C, H, W
  ChannelStatistics statistics;  // (pixel / 255 - mean) / deviation; empty: pixel / 255
  std::uint64_t seed = 0;
};

// For training on `data` with this image size (0: as the data are). `normalize` is none, auto (the data set's own
// statistics) or M/S, each one number or one per channel with commas. Throws usage errors: images that differ in
// size or are not square where a square is wanted, unknown statistics, a deviation of 0.
struct RecipeRequest {
  Augment augment = Augment::none;
  std::string normalize;
  std::int64_t image_size = 0;
  std::uint64_t seed = 0;
};
ImageRecipe make_recipe(const RecipeRequest& request, const DatasetInfo& data);
// The same, but `auto` computes the statistics of a set that lies in memory and has none.
ImageRecipe make_recipe(const RecipeRequest& request, const Dataset& data);
// What `normalize` must be to ask for these statistics of any data, to the last bit.
std::string normalize_text(const ChannelStatistics& statistics);

}  // namespace tutti
