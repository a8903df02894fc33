#pragma once
// Preprocessing of an image between the data set and the network: crop, resize, flip, scale to [0, 1], normalize. A
// pure function of seed, epoch and sample (or position, if samples repeat; and of the part's other samples, if they are
// mixed), independent of the number of ranks and threads.

#include "tutti/base/enum_names.hpp"
#include "tutti/base/shape.hpp"
#include "tutti/data/dataset.hpp"

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace tutti {

// The crop of a training image; test images are only fitted to the size.
//   none           fitted to the size, like test images
//   crop-flip      resized to 5/4 of the size, a random square of 0.64 to 1.0 of that area resized to the size
//   pad-crop-flip  padded with 1/8 of the size in zeros, a random square of the size
//   resized-crop   a random crop of 0.08 to 1.0 of the area, 3:4 to 4:3, resized to the size
//   shift          fitted to the size, moved by up to `shift` pixels along each axis, edges reflected
// Fitting: an image of the right size is not changed; of any other, the short side is resized to 8/7 of the size, or to
// the size itself (keeps_short_side), and the center is cropped.
enum class Crop { none, crop_flip, pad_crop_flip, resized_crop, shift };
constexpr std::array<std::string_view, 5> enum_names(Crop) {
  return {"none", "crop-flip", "pad-crop-flip", "resized-crop", "shift"};
}

// Horizontal flips: with probability 1/2, or in every other epoch. The first epoch flips a random half of the images.
enum class Flip { none, random, alternate };

// torchvision's ColorJitter: the largest change of each, a share; of the hue, a share of the circle. 0: none.
struct ColorJitter {
  double brightness = 0;
  double contrast = 0;
  double saturation = 0;
  double hue = 0;
  friend bool operator==(const ColorJitter&, const ColorJitter&) = default;
};

// torchvision's RandAugment: so many operations, of a magnitude of 0 to 30.
struct RandAugment {
  int operations = 0;
  int magnitude = 9;
};

struct Augment {
  Crop crop;
  std::int64_t shift = 0;  // pixels
  Flip flip;
  bool vertical_flip = false;  // with probability 1/2
  double rotate = 0;           // by at most so many degrees, as by torchvision's RandomRotation
  ColorJitter jitter{};
  // JPEG files are decoded at an eighth, a quarter or a half of their size if the crop's pixels are still as many as
  // the network's input has.
  bool scaled_decode = false;
  bool trivial = false;  // one of torchvision's TrivialAugmentWide operations
  RandAugment rand_augment{};
  double erase = 0;  // the probability that a random rectangle is erased, as by torchvision's RandomErasing
  // Parameters of the beta distributions of mixup and cutmix; 0: off. With both, a fair coin chooses for each step.
  double mixup = 0;
  double cutmix = 0;

  // The first three crops imply random flips.
  Augment(Crop of = Crop::none) : crop(of), flip(of == Crop::none || of == Crop::shift ? Flip::none : Flip::random) {}

  // Whether it changes colors, and whether it changes any bytes of the image before they are normalized.
  bool changes_colors() const { return jitter != ColorJitter{} || trivial || rand_augment.operations > 0; }
  bool changes_bytes() const { return changes_colors() || rotate > 0; }
  // Whether it only resamples the axes of an image, which a GPU can do.
  bool only_resamples() const { return !changes_bytes() && erase == 0 && !mixes(); }
  bool mixes() const { return mixup > 0 || cutmix > 0; }
};
// The value of "--augment": a crop (shift:N), flip or alternate-flip, vertical-flip, rotate:D, jitter:B/C/S/H,
// scaled-decode, trivial or randaugment:N/M, erase:P, mixup:A and cutmix:A, separated by commas. Throws a usage error.
Augment parse_augment(const std::string& text);

struct ImageRecipe {
  Augment augment{};
  Shape image;                   // the network's input, C, N, N; a scalar: the data's C, H, W
  ChannelStatistics statistics;  // (pixel / 255 - mean) / deviation; empty: pixel / 255
  std::uint64_t seed = 0;
  bool keeps_short_side = false;  // fitting crops the long side only
};

// A recipe for training with this image size (0: the data's). `normalize` is none, auto (the data set's own statistics)
// or M/S, each one number or one per channel separated by commas.
struct RecipeRequest {
  Augment augment{};
  std::string normalize;
  std::int64_t image_size = 0;
  std::uint64_t seed = 0;
  // Empty: if the data are a data file whose images have the network's size and the whole short side, other images,
  // such as those that predict gets, are fitted in the same way.
  std::optional<bool> keeps_short_side{};
};
// Throws usage errors: images that differ in size or are not square although squares are required, a shift as large as
// the images, unknown statistics, a standard deviation of 0.
ImageRecipe make_recipe(const RecipeRequest& request, const DatasetInfo& data);
// As above, but `auto` computes the statistics of a data set that is in memory and has none.
ImageRecipe make_recipe(const RecipeRequest& request, const Dataset& data);
// The value of `normalize` that gives exactly these statistics for any data.
std::string normalize_text(const ChannelStatistics& statistics);

}  // namespace tutti
