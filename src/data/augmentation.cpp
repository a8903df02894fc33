#include "augmentation.hpp"

#include "tutti/base/random.hpp"

#include <algorithm>
#include <cmath>

namespace tutti {
namespace {

struct Extent {
  std::int64_t height = 0;
  std::int64_t width = 0;
};

struct Axis {
  std::int64_t input = 0;
  std::int64_t resized = 0;
};

// All resized pixels count.
AxisPlan cut_axis(const Axis& axis, IndexRange cut, std::int64_t output) {
  return {.input = axis.input, .resized = axis.resized, .kept = {0, axis.resized}, .cut = cut, .output = output};
}

// The image with its short side resized, proportions kept.
Extent with_short_side(const Extent& image, std::int64_t side) {
  if (image.height <= image.width) return {side, image.width * side / image.height};
  return {image.height * side / image.width, side};
}

// An image of the wanted size is left alone; of any other, the centre is cut out of 8/7 of the size.
ImagePlan fit(const Extent& image, const Extent& wanted) {
  const bool fits = image.height == wanted.height && image.width == wanted.width;
  const std::int64_t side = (wanted.height * 8 + 3) / 7;
  const Extent resized = fits ? image : with_short_side(image, side);
  const auto centre = [](const Axis& axis, std::int64_t size) {
    const std::int64_t begin = (axis.resized - size) / 2;
    return cut_axis(axis, {begin, begin + size}, size);
  };
  return {centre({image.height, resized.height}, wanted.height), centre({image.width, resized.width}, wanted.width)};
}

struct Room {
  std::int64_t size = 0;
  std::int64_t all = 0;
};

IndexRange draw_range(RandomSequence& random, const Room& room) {
  const auto [size, all] = room;
  const auto begin = static_cast<std::int64_t>(random.below(static_cast<std::uint32_t>(all - size + 1)));
  return {begin, begin + size};
}

std::int64_t short_side_of_crops(const Extent& wanted) { return (wanted.height * 5 + 2) / 4; }

ImagePlan crop(const Extent& image, const Extent& wanted, RandomSequence& random) {
  const std::int64_t short_side = short_side_of_crops(wanted);
  const Extent resized = with_short_side(image, short_side);
  const double area = 0.64 + 0.36 * random.uniform();
  const auto side = static_cast<std::int64_t>(static_cast<double>(short_side) * std::sqrt(area) + 0.5);
  const IndexRange rows = draw_range(random, {.size = side, .all = resized.height});
  const IndexRange columns = draw_range(random, {.size = side, .all = resized.width});
  return {cut_axis({image.height, resized.height}, rows, wanted.height),
          cut_axis({image.width, resized.width}, columns, wanted.width)};
}

ImagePlan pad_and_crop(const Extent& image, const Extent& wanted, RandomSequence& random) {
  ImagePlan plan = fit(image, wanted);
  for (AxisPlan* axis : {&plan.rows, &plan.columns}) {
    const std::int64_t frame = axis->output / 8;
    const IndexRange drawn = draw_range(random, {.size = axis->output, .all = axis->output + 2 * frame});
    axis->kept = axis->cut;
    axis->cut = {axis->kept.begin + drawn.begin - frame, axis->kept.begin + drawn.end - frame};
  }
  return plan;
}

// (4/3)^x for -1 <= x <= 1.
double power_of_four_thirds(double x) {
  constexpr double kLog = 0.28768207245178092744;
  double series = 1;
  for (int k = 14; k >= 1; --k) series = 1 + series * x * kLog / k;
  return series;
}

ImagePlan resized_crop(const Extent& image, const Extent& wanted, RandomSequence& random) {
  const auto cut = [&](const IndexRange& rows, const IndexRange& columns) {
    return ImagePlan{cut_axis({image.height, image.height}, rows, wanted.height),
                     cut_axis({image.width, image.width}, columns, wanted.width)};
  };
  const auto all = static_cast<double>(image.height * image.width);
  for (int attempt = 0; attempt < 10; ++attempt) {
    const double area = all * (0.08 + 0.92 * random.uniform());
    const double ratio = power_of_four_thirds(2 * random.uniform() - 1);
    const auto width = static_cast<std::int64_t>(std::sqrt(area * ratio) + 0.5);
    const auto height = static_cast<std::int64_t>(std::sqrt(area / ratio) + 0.5);
    if (width < 1 || width > image.width || height < 1 || height > image.height) continue;
    const IndexRange rows = draw_range(random, {.size = height, .all = image.height});
    return cut(rows, draw_range(random, {.size = width, .all = image.width}));
  }
  // A very long image: its centre, at the nearest ratio that is allowed.
  const std::int64_t width = std::min(image.width, std::max<std::int64_t>(1, image.height * 4 / 3));
  const std::int64_t height = std::min(image.height, std::max<std::int64_t>(1, image.width * 4 / 3));
  const std::int64_t top = (image.height - height) / 2;
  const std::int64_t left = (image.width - width) / 2;
  return cut({top, top + height}, {left, left + width});
}

ImagePlan draw_piece(Augment augment, const Extent& image, const Extent& wanted, RandomSequence& random) {
  switch (augment) {
    case Augment::crop_flip:
      return crop(image, wanted, random);
    case Augment::pad_crop_flip:
      return pad_and_crop(image, wanted, random);
    case Augment::resized_crop:
      return resized_crop(image, wanted, random);
    case Augment::none:
      break;
  }
  return fit(image, wanted);
}

// Of an axis that is cut to any size up to its own. A cut as large as the output gathers less than a smaller one.
IndexRange widest_cut(const Axis& axis, std::int64_t output) {
  return {0, axis.resized == output ? std::max<std::int64_t>(1, output - 1) : axis.resized};
}

}  // namespace

ImagePlan plan_image(const ImageRecipe& recipe, const Shape& image, const SampleKey& key) {
  const Extent from{image[1], image[2]};
  const Extent wanted{recipe.image[1], recipe.image[2]};
  if (recipe.augment == Augment::none) return fit(from, wanted);
  RandomSequence random(recipe.seed, {.item = static_cast<std::uint32_t>(key.sample),
                                      .when = static_cast<std::uint32_t>(key.epoch),
                                      .purpose = random_purpose("augment")});
  const bool flipped = random.next() >> 31 != 0;
  ImagePlan plan = draw_piece(recipe.augment, from, wanted, random);
  plan.columns.mirrored = flipped;
  return plan;
}

ImagePlan widest_plan(const ImageRecipe& recipe, const Shape& image) {
  const Extent from{image[1], image[2]};
  const Extent wanted{recipe.image[1], recipe.image[2]};
  if (recipe.augment == Augment::resized_crop) {
    const auto piece = [](const Axis& axis, std::int64_t output) {
      return cut_axis(axis, widest_cut(axis, output), output);
    };
    return {piece({from.height, from.height}, wanted.height), piece({from.width, from.width}, wanted.width)};
  }
  if (recipe.augment == Augment::crop_flip) {
    const std::int64_t side = short_side_of_crops(wanted);
    const Extent resized = with_short_side(from, side);
    return {cut_axis({from.height, resized.height}, {0, side}, wanted.height),
            cut_axis({from.width, resized.width}, {0, side}, wanted.width)};
  }
  return fit(from, wanted);
}

}  // namespace tutti
