#pragma once
// Which crop of an image a network gets, and how large: the geometry of every recipe, without a pixel. Random numbers
// are drawn in this order: the flip (one draw), the area (one of 53 bits; resized-crop: area and ratio, up to ten
// times), the top, the left.

#include "tutti/data/image_recipe.hpp"
#include "tutti/data/part_plan.hpp"

#include <cstddef>
#include <cstdint>
#include <vector>

namespace tutti {

// One axis of an image is resized, cropped, resized again and mirrored at once: every output pixel is a weighted sum of
// neighbouring input pixels. The filter is a triangle over pixel centres, as wide as the shrinking asks for and never
// narrower than bilinear; so it is what Pillow and torchvision do by default. Weights are multiples of 2^-16 that add
// up to one: sums of weighted bytes are exact in f32, and flat areas stay flat.
struct AxisPlan {
  std::int64_t input = 0;    // pixels
  std::int64_t resized = 0;  // what they are resized to first
  IndexRange kept;           // of the resized pixels; beyond it all is black
  IndexRange crop;           // of the resized pixels, and possibly beyond them
  std::int64_t output = 0;   // what the crop is resized to
  bool mirrored = false;

  friend bool operator==(const AxisPlan&, const AxisPlan&) = default;
};

class AxisWeights {
 public:
  // Where an output gathers several inputs and the axis is long enough, taps come in whole groups of kGroup.
  static constexpr std::int64_t kGroup = 4;

  // No axis of these sizes has more taps, wherever its crop begins.
  static std::int64_t most_taps(const AxisPlan& plan);

  // Replaces what was planned before.
  void plan(const AxisPlan& plan);

  // Output i is the sum over t below taps() of weights(t)[i] * input[first()[i] + t].
  std::int64_t taps() const { return taps_; }
  const std::vector<std::int64_t>& first() const { return first_; }
  const float* weights(std::int64_t tap) const { return weights_.data() + tap * std::ssize(first_); }
  // The inputs that any output uses.
  IndexRange used() const { return used_; }
  // Every output is one input pixel, or black.
  bool copies() const { return taps_ == 1; }

 private:
  struct Sizes {
    std::int64_t from = 0;
    std::int64_t to = 0;
  };
  // Some rows of the matrix that resizes one axis.
  struct Resize {
    std::int64_t taps = 1;
    std::vector<std::int64_t> first;  // by row
    std::vector<double> weights;      // by row, then tap

    static std::int64_t taps_of(const Sizes& sizes);
    void plan(const Sizes& sizes, IndexRange rows);
  };
  struct Span {
    IndexRange rows;    // of the first resize, that one output gathers
    IndexRange inputs;  // that these rows gather
  };

  void select(const AxisPlan& plan);
  void note_used();
  Span span_of(std::size_t output, const AxisPlan& plan) const;
  void gather(std::size_t output, const AxisPlan& plan);
  void store(std::size_t output);

  AxisPlan planned_;
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

// What the random numbers of one image are drawn for.
struct SampleKey {
  std::int64_t sample = 0;
  std::int64_t epoch = 0;
};

// `image` is C, H, W.
ImagePlan plan_image(const ImageRecipe& recipe, const Shape& image, const SampleKey& key);
// One whose axes gather as many pixels as those of any plan for such images can: see AxisWeights::most_taps().
ImagePlan widest_plan(const ImageRecipe& recipe, const Shape& image);

}  // namespace tutti
