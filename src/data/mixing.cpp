#include "mixing.hpp"

#include "tutti/base/random.hpp"

#include <algorithm>
#include <cmath>

namespace tutti {

Mixing draw_mixing(const ImageRecipe& recipe, std::int64_t epoch, std::int64_t step) {
  const double mixup = recipe.augment.mixup;
  const double cutmix = recipe.augment.cutmix;
  RandomSequence random(recipe.seed, {.item = static_cast<std::uint32_t>(step),
                                      .when = static_cast<std::uint32_t>(epoch),
                                      .purpose = random_purpose("mix")});
  const bool coin = random.next() >> 31 != 0;
  Mixing mixing{.cuts = cutmix > 0 && (mixup == 0 || coin)};
  const double share = random.beta(mixing.cuts ? cutmix : mixup);
  mixing.share = static_cast<float>(share);
  if (!mixing.cuts) return mixing;
  const auto cut = [&](std::int64_t length) {
    const std::int64_t center = random.below(static_cast<std::uint32_t>(length));
    const auto half = static_cast<std::int64_t>(0.5 * std::sqrt(1 - share) * static_cast<double>(length));
    return IndexRange{std::max<std::int64_t>(0, center - half), std::min(length, center + half)};
  };
  mixing.columns = cut(recipe.image[2]);
  mixing.rows = cut(recipe.image[1]);
  mixing.share = 1 - static_cast<float>(mixing.rows.size() * mixing.columns.size()) /
                         static_cast<float>(recipe.image[1] * recipe.image[2]);
  return mixing;
}

void mix_images(const Mixing& mixing, const Shape& image, float* one, float* other) {
  if (mixing.cuts) {
    for (std::int64_t plane = 0; plane < image[0]; ++plane) {
      for (std::int64_t y = mixing.rows.begin; y < mixing.rows.end; ++y) {
        const std::int64_t first = (plane * image[1] + y) * image[2] + mixing.columns.begin;
        std::swap_ranges(one + first, one + first + mixing.columns.size(), other + first);
      }
    }
    return;
  }
  const float own = mixing.share;
  const float rest = 1 - own;
  for (std::int64_t i = 0; i < image.elements(); ++i) {
    const float value = one[i];
    one[i] = own * value + rest * other[i];
    other[i] = own * other[i] + rest * value;
  }
}

}  // namespace tutti
