#pragma once
// Mixup and cutmix: every sample of a step is mixed with another of its part. The random numbers belong to the step.

#include "tutti/data/image_recipe.hpp"
#include "tutti/data/part_map.hpp"

#include <cstdint>

namespace tutti {

struct Mixing {
  float share = 1;  // of a sample itself; the rest is its partner's
  // The rectangle that cutmix takes from the partner; empty with mixup, which adds the two images.
  IndexRange rows{};
  IndexRange columns{};
  bool cuts = false;
};
// `step` is within the epoch.
Mixing draw_mixing(const ImageRecipe& recipe, std::int64_t epoch, std::int64_t step);

// Mixes each of two images, C, H, W, with the other.
void mix_images(const Mixing& mixing, const Shape& image, float* one, float* other);

}  // namespace tutti
