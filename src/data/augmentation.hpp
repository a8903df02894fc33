#pragma once
// Which piece of an image a network gets, and how large: the geometry of every recipe, without a pixel. Random numbers
// are drawn in this order: the flip (one draw), the area (one of 53 bits; resized-crop: area and ratio, up to ten
// times), the top, the left.

#include "tutti/data/image_recipe.hpp"

#include "axis_weights.hpp"

#include <cstdint>

namespace tutti {

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
