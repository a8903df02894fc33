#pragma once
// The geometry of every recipe: which crop of an image the network gets, and its size. Random numbers are drawn in this
// order: the flip (one draw; alternate flips have their own number), the area (one draw of 53 bits; resized-crop: area
// and ratio, up to ten times), the top, the left.

#include "tutti/base/random.hpp"
#include "tutti/data/image_recipe.hpp"
#include "tutti/data/part_map.hpp"

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

namespace tutti {

// Resizes, crops, resizes again and mirrors one axis of an image in one pass: every output pixel is a weighted sum of
// neighboring input pixels. The filter is a triangle over pixel centers, widened when shrinking and never narrower
// than bilinear, as in Pillow and torchvision by default. Weights are multiples of 2^-16 that add up to one, so sums of
// weighted bytes are exact in f32 and flat areas stay flat.
struct AxisPlan {
  std::int64_t input = 0;    // pixels
  std::int64_t resized = 0;  // size after the first resize
  IndexRange kept;           // resized pixels that are used; all others are black
  IndexRange crop;           // in resized pixels; may extend beyond them
  std::int64_t output = 0;   // size that the crop is resized to
  std::int64_t shift = 0;    // output i is what output i + shift would be; reflected at the ends
  bool mirrored = false;
  std::int64_t eighths = 8;  // of its size at which the image is decoded; the above is in pixels of the whole size

  friend bool operator==(const AxisPlan&, const AxisPlan&) = default;
};

// Rows and columns of an image.
struct ImageRegion {
  IndexRange rows;
  IndexRange columns;
  std::int64_t eighths = 8;  // of the image's size: these are rows and columns of the image scaled to it
};

// The pixels of an axis that is scaled to so many eighths of its size.
constexpr std::int64_t scaled_size(std::int64_t pixels, std::int64_t eighths) { return (pixels * eighths + 7) / 8; }

// The pixels of a region in memory, borrowed: `first` is channel 0 of its first pixel, the others are so many bytes
// apart. Where all channels are equal, their distance is 0.
struct RegionPixels {
  const std::uint8_t* first = nullptr;
  std::ptrdiff_t by_channel = 0;
  std::ptrdiff_t by_row = 0;
  std::ptrdiff_t by_column = 0;
  ImageRegion region;
};

class AxisWeights {
 public:
  // If an output has more than one tap and the axis is long enough, the number of taps is a multiple of kGroup.
  static constexpr std::int64_t kGroup = 4;

  // The largest number of taps of any axis with these sizes, for any position of its crop.
  static std::int64_t most_taps(const AxisPlan& plan);

  // Computes the weights; replaces those of the previous plan.
  void plan(const AxisPlan& plan);

  // Output i is the sum over t below taps() of weights(t)[i] * input[first()[i] + t].
  std::int64_t taps() const { return taps_; }
  const std::vector<std::int64_t>& first() const { return first_; }
  const float* weights(std::int64_t tap) const { return weights_.data() + tap * std::ssize(first_); }
  // The range of inputs that outputs use.
  IndexRange used() const { return used_; }
  // Whether every output is a single input pixel, or black.
  bool copies() const { return taps_ == 1; }

 private:
  // Some rows of the matrix that resizes one axis of `from` pixels to `to` pixels.
  struct Resize {
    std::int64_t taps = 1;
    std::vector<std::int64_t> first;  // by row
    std::vector<double> weights;      // by row, then tap

    static std::int64_t taps_of(std::int64_t from, std::int64_t to);
    // Row i is `scale` pixels of the `inputs`, of which that of row 0 begins at `offset`.
    void plan(double scale, double offset, std::int64_t inputs, IndexRange rows);
  };
  struct Span {
    IndexRange rows;    // rows of the first resize that contribute to one output
    IndexRange inputs;  // inputs that contribute to these rows
  };

  Span span_of(std::size_t output) const;
  // Computes the weights of an output, which are stored at `index`.
  void gather(std::size_t output, std::size_t index);

  void plan_resizes(const AxisPlan& plan);

  AxisPlan requested_;
  AxisPlan planned_;  // the same with the inputs that are decoded
  std::int64_t taps_ = 1;
  std::vector<std::int64_t> first_;
  std::vector<float> weights_;  // by tap, then output
  IndexRange used_;
  // Kept between plans for their memory.
  IndexRange rows_;
  Resize to_resized_;
  Resize to_output_;
  std::vector<double> sums_;
  std::vector<std::int32_t> units_;
};

struct ImagePlan {
  AxisPlan rows;
  AxisPlan columns;
};

// Identifies the random numbers of one image.
struct SampleKey {
  std::int64_t sample = 0;
  std::int64_t epoch = 0;
  std::int64_t item = sample;  // keys the random numbers in the epoch: the sample, or its position if it may repeat
};

// The random numbers for one purpose of an image in an epoch.
RandomSequence random_of(std::string_view purpose, std::uint64_t seed, const SampleKey& key);

// The least eighths of its size, of 1, 2, 4 and 8, at which a decoded image has at least a pixel for each one that the
// plan gives. libjpeg decodes at these sizes with vector instructions.
std::int64_t least_eighths(const ImagePlan& plan);

// `image` is C, H, W.
ImagePlan plan_image(const ImageRecipe& recipe, const Shape& image, const SampleKey& key);
// The rectangle that is erased, in pixels of the network's input. Often empty.
struct ErasedBox {
  IndexRange rows;
  IndexRange columns;
};
ErasedBox draw_erased(const ImageRecipe& recipe, const SampleKey& key);
// The plan with the most taps per axis of all plans for such images, for AxisWeights::most_taps().
ImagePlan widest_plan(const ImageRecipe& recipe, const Shape& image);

}  // namespace tutti
