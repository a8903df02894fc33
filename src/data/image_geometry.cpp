#include "image_geometry.hpp"

#include "tutti/base/portable_math.hpp"
#include "tutti/base/random.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace tutti {
namespace {

constexpr double kUnits = 65536;  // a weight of one

std::int32_t nearest(double value) { return static_cast<std::int32_t>(value + 0.5); }

// Rounds taps up to a multiple of kGroup if the axis is long enough.
std::int64_t in_groups(std::int64_t taps, std::int64_t input) {
  constexpr std::int64_t kGroup = AxisWeights::kGroup;
  return taps > 1 ? std::min(input, (taps + kGroup - 1) / kGroup * kGroup) : taps;
}

struct Extent {
  std::int64_t height = 0;
  std::int64_t width = 0;
};

// Uses all resized pixels.
AxisPlan crop_axis(std::int64_t input, std::int64_t resized, IndexRange crop, std::int64_t output) {
  return {.input = input, .resized = resized, .kept = {0, resized}, .crop = crop, .output = output};
}

// The image with its short side resized, proportions kept.
Extent with_short_side(const Extent& image, std::int64_t side) {
  if (image.height <= image.width) return {side, image.width * side / image.height};
  return {image.height * side / image.width, side};
}

// An image of the wanted size is not changed. The short side of any other is resized, and the center is cropped.
ImagePlan fit(const Extent& image, const Extent& wanted, bool keeps_short_side) {
  const bool fits = image.height == wanted.height && image.width == wanted.width;
  const std::int64_t side = keeps_short_side ? wanted.height : (wanted.height * 8 + 3) / 7;
  const Extent resized = fits ? image : with_short_side(image, side);
  const auto center = [](std::int64_t from, std::int64_t to, std::int64_t size) {
    const std::int64_t begin = (to - size) / 2;
    return crop_axis(from, to, {begin, begin + size}, size);
  };
  return {center(image.height, resized.height, wanted.height), center(image.width, resized.width, wanted.width)};
}

IndexRange draw_range(RandomSequence& random, std::int64_t length, std::int64_t total) {
  const auto begin = static_cast<std::int64_t>(random.below(static_cast<std::uint32_t>(total - length + 1)));
  return {begin, begin + length};
}

std::int64_t short_side_of_crops(const Extent& wanted) { return (wanted.height * 5 + 2) / 4; }

ImagePlan random_crop(const Extent& image, const Extent& wanted, RandomSequence& random) {
  const std::int64_t short_side = short_side_of_crops(wanted);
  const Extent resized = with_short_side(image, short_side);
  const double area = 0.64 + 0.36 * random.uniform();
  const auto side = static_cast<std::int64_t>(static_cast<double>(short_side) * std::sqrt(area) + 0.5);
  const IndexRange rows = draw_range(random, side, resized.height);
  const IndexRange columns = draw_range(random, side, resized.width);
  return {crop_axis(image.height, resized.height, rows, wanted.height),
          crop_axis(image.width, resized.width, columns, wanted.width)};
}

ImagePlan pad_and_crop(ImagePlan plan, RandomSequence& random) {
  for (AxisPlan* axis : {&plan.rows, &plan.columns}) {
    const std::int64_t frame = axis->output / 8;
    const IndexRange drawn = draw_range(random, axis->output, axis->output + 2 * frame);
    axis->kept = axis->crop;
    axis->crop = {axis->kept.begin + drawn.begin - frame, axis->kept.begin + drawn.end - frame};
  }
  return plan;
}

ImagePlan shift(ImagePlan plan, std::int64_t most, RandomSequence& random) {
  for (AxisPlan* axis : {&plan.rows, &plan.columns}) axis->shift = draw_range(random, 1, 2 * most + 1).begin - most;
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
  const auto crop = [&](const IndexRange& rows, const IndexRange& columns) {
    return ImagePlan{crop_axis(image.height, image.height, rows, wanted.height),
                     crop_axis(image.width, image.width, columns, wanted.width)};
  };
  const auto all = static_cast<double>(image.height * image.width);
  for (int attempt = 0; attempt < 10; ++attempt) {
    const double area = all * (0.08 + 0.92 * random.uniform());
    const double ratio = power_of_four_thirds(2 * random.uniform() - 1);
    const auto width = static_cast<std::int64_t>(std::sqrt(area * ratio) + 0.5);
    const auto height = static_cast<std::int64_t>(std::sqrt(area / ratio) + 0.5);
    if (width < 1 || width > image.width || height < 1 || height > image.height) continue;
    const IndexRange rows = draw_range(random, height, image.height);
    return crop(rows, draw_range(random, width, image.width));
  }
  // A very long image: its center, at the nearest ratio that is allowed.
  const std::int64_t width = std::min(image.width, std::max<std::int64_t>(1, image.height * 4 / 3));
  const std::int64_t height = std::min(image.height, std::max<std::int64_t>(1, image.width * 4 / 3));
  const std::int64_t top = (image.height - height) / 2;
  const std::int64_t left = (image.width - width) / 2;
  return crop({top, top + height}, {left, left + width});
}

ImagePlan draw_crop(const ImageRecipe& recipe, const Extent& image, const Extent& wanted, RandomSequence& random) {
  const ImagePlan fitted = fit(image, wanted, recipe.keeps_short_side);
  switch (recipe.augment.crop) {
    case Crop::crop_flip:
      return random_crop(image, wanted, random);
    case Crop::pad_crop_flip:
      return pad_and_crop(fitted, random);
    case Crop::resized_crop:
      return resized_crop(image, wanted, random);
    case Crop::shift:
      return shift(fitted, recipe.augment.shift, random);
    case Crop::none:
      break;
  }
  return fitted;
}

// A flip by a fair coin, or in every other epoch from one that a fair coin chooses.
bool draw_flip(const ImageRecipe& recipe, const SampleKey& key, RandomSequence& random) {
  const bool flips = random.next() >> 31 != 0;
  if (recipe.augment.flip != Flip::alternate) return flips && recipe.augment.flip == Flip::random;
  const auto own = philox(
      recipe.seed, {.item = static_cast<std::uint32_t>(key.sample), .purpose = random_purpose("alternate flip")});
  return (own[0] >> 31 != 0) == (key.epoch % 2 == 0);
}

bool draw_vertical_flip(const ImageRecipe& recipe, const SampleKey& key) {
  return recipe.augment.vertical_flip && random_of("vertical flip", recipe.seed, key).next() >> 31 != 0;
}

// The crop with the most taps of an axis that is cropped to any size up to its own. A crop of the output's size needs
// fewer taps than a smaller one.
AxisPlan widest_crop(std::int64_t size, std::int64_t output) {
  return crop_axis(size, size, {0, size == output ? std::max<std::int64_t>(1, output - 1) : size}, output);
}

}  // namespace

std::int64_t AxisWeights::Resize::taps_of(std::int64_t from, std::int64_t to) {
  const double scale = static_cast<double>(from) / static_cast<double>(to);
  return from == to ? 1 : std::min(from, static_cast<std::int64_t>(std::ceil(2 * std::max(1.0, scale))));
}

void AxisWeights::Resize::plan(double scale, double offset, std::int64_t inputs, IndexRange rows) {
  const bool copies = scale == 1 && offset == 0;
  const double reach = std::max(1.0, scale);
  taps = copies ? 1 : std::min(inputs, static_cast<std::int64_t>(std::ceil(2 * reach)));
  first.resize(static_cast<std::size_t>(rows.size()));
  weights.resize(static_cast<std::size_t>(rows.size() * taps));
  for (std::int64_t row = rows.begin; row < rows.end; ++row) {
    const double center = offset + (static_cast<double>(row) + 0.5) * scale;
    const auto lowest = static_cast<std::int64_t>(std::max(0.0, center - reach + 0.5));
    const std::int64_t begin = copies ? row : std::min(lowest, inputs - taps);
    double* const mine = weights.data() + (row - rows.begin) * taps;
    for (std::int64_t tap = 0; tap < taps; ++tap) {
      const double distance = std::abs(static_cast<double>(begin + tap) + 0.5 - center);
      mine[tap] = std::max(0.0, 1.0 - distance / reach);
    }
    const double whole = std::accumulate(mine, mine + taps, 0.0);
    std::transform(mine, mine + taps, mine, [whole](double weight) { return weight / whole; });
    first[static_cast<std::size_t>(row - rows.begin)] = begin;
  }
}

// An output is a sum of neighboring rows of the first resize, whose first inputs are at most `apart` pixels apart.
std::int64_t AxisWeights::most_taps(const AxisPlan& plan) {
  const std::int64_t inner = Resize::taps_of(plan.input, plan.resized);
  const std::int64_t outer = Resize::taps_of(plan.crop.size(), plan.output);
  const double scale = static_cast<double>(plan.input) / static_cast<double>(plan.resized);
  const auto apart = static_cast<std::int64_t>(std::ceil(static_cast<double>(outer - 1) * scale));
  return in_groups(std::min(plan.input, inner + apart), plan.input);
}

void AxisWeights::plan(const AxisPlan& plan) {
  if (plan == requested_) return;
  requested_ = planned_ = plan;
  const auto outputs = static_cast<std::size_t>(plan.output);
  const bool resizes = plan.resized != plan.input || plan.crop.size() != plan.output;
  taps_ = 1;
  if (resizes) {
    plan_resizes(plan);
    for (std::size_t i = 0; i < outputs; ++i) taps_ = std::max(taps_, span_of(i).inputs.size());
    taps_ = in_groups(taps_, planned_.input);
    sums_.resize(static_cast<std::size_t>(taps_));
    units_.resize(static_cast<std::size_t>(taps_));
  }
  first_.assign(outputs, 0);
  weights_.assign(outputs * static_cast<std::size_t>(taps_), 0.0f);
  for (std::size_t i = 0; i < outputs; ++i) {
    const std::size_t index = plan.mirrored ? outputs - 1 - i : i;
    const std::int64_t last = plan.output - 1;
    auto source = static_cast<std::int64_t>(i);
    if (plan.shift != 0) source = last - std::abs(last - std::abs(source + plan.shift));
    if (resizes) {
      gather(static_cast<std::size_t>(source), index);
      continue;
    }
    // Each output is one input, or black.
    const std::int64_t input = plan.crop.begin + source;
    if (input < plan.kept.begin || input >= plan.kept.end) continue;
    first_[index] = input;
    weights_[index] = 1;
  }
  const auto [lowest, highest] = std::ranges::minmax(first_);
  used_ = {lowest, highest + taps_};
}

void AxisWeights::plan_resizes(const AxisPlan& plan) {
  const double decoded = static_cast<double>(plan.eighths) / 8;
  planned_.input = scaled_size(plan.input, plan.eighths);
  if (plan.eighths != 8 && plan.resized == plan.input) {
    // The only resize is that of the crop, which may begin within a decoded pixel.
    planned_.resized = plan.output;
    planned_.kept = planned_.crop = rows_ = {0, plan.output};
    to_resized_.plan(static_cast<double>(plan.crop.size()) * decoded / static_cast<double>(plan.output),
                     static_cast<double>(plan.crop.begin) * decoded, planned_.input, rows_);
  } else {
    rows_ = {std::max(plan.crop.begin, plan.kept.begin), std::min(plan.crop.end, plan.kept.end)};
    to_resized_.plan(static_cast<double>(plan.input) * decoded / static_cast<double>(plan.resized), 0, planned_.input,
                     rows_);
  }
  const std::int64_t cropped = planned_.crop.size();
  to_output_.plan(static_cast<double>(cropped) / static_cast<double>(plan.output), 0, cropped, {0, plan.output});
}

AxisWeights::Span AxisWeights::span_of(std::size_t output) const {
  const std::int64_t begin = planned_.crop.begin + to_output_.first[output];
  const IndexRange rows{std::max(begin, rows_.begin), std::min(begin + to_output_.taps, rows_.end)};
  if (rows.size() <= 0) return {};
  const auto first_of = [&](std::int64_t row) {
    return to_resized_.first[static_cast<std::size_t>(row - rows_.begin)];
  };
  return {rows, {first_of(rows.begin), first_of(rows.end - 1) + to_resized_.taps}};
}

void AxisWeights::gather(std::size_t output, std::size_t index) {
  const auto [rows, inputs] = span_of(output);
  const std::int64_t first = std::min(inputs.begin, planned_.input - taps_);
  std::ranges::fill(sums_, 0.0);
  for (std::int64_t row = rows.begin; row < rows.end; ++row) {
    const std::int64_t outer_tap = row - planned_.crop.begin - to_output_.first[output];
    const double outer =
        to_output_.weights[output * static_cast<std::size_t>(to_output_.taps) + static_cast<std::size_t>(outer_tap)];
    const double* const inner = to_resized_.weights.data() + (row - rows_.begin) * to_resized_.taps;
    double* const sums = sums_.data() + to_resized_.first[static_cast<std::size_t>(row - rows_.begin)] - first;
    for (std::int64_t tap = 0; tap < to_resized_.taps; ++tap) sums[tap] += outer * inner[tap];
  }
  first_[index] = first;
  // The sums are rounded to units, and the rounding error is added to the largest.
  const double whole = std::accumulate(sums_.begin(), sums_.end(), 0.0);
  std::ranges::transform(sums_, units_.begin(), [](double sum) { return nearest(sum * kUnits); });
  *std::ranges::max_element(units_) += nearest(whole * kUnits) - std::accumulate(units_.begin(), units_.end(), 0);
  for (std::size_t tap = 0; tap < units_.size(); ++tap) {
    weights_[tap * first_.size() + index] = static_cast<float>(units_[tap]) * static_cast<float>(1 / kUnits);
  }
}

std::int64_t least_eighths(const ImagePlan& plan) {
  const auto suffices = [](const AxisPlan& axis, std::int64_t eighths) {
    return axis.input * axis.crop.size() * eighths >= 8 * axis.resized * axis.output;
  };
  for (const std::int64_t eighths : {1, 2, 4}) {
    if (suffices(plan.rows, eighths) && suffices(plan.columns, eighths)) return eighths;
  }
  return 8;
}

RandomSequence random_of(std::string_view purpose, std::uint64_t seed, const SampleKey& key) {
  return RandomSequence(seed, {.item = static_cast<std::uint32_t>(key.item),
                               .when = static_cast<std::uint32_t>(key.epoch),
                               .purpose = random_purpose(purpose)});
}

ImagePlan plan_image(const ImageRecipe& recipe, const Shape& image, const SampleKey& key) {
  const Extent from{image[1], image[2]};
  const Extent wanted{recipe.image[1], recipe.image[2]};
  const bool is_turned = draw_vertical_flip(recipe, key);
  if (recipe.augment.crop == Crop::none && recipe.augment.flip == Flip::none) {
    ImagePlan fitted = fit(from, wanted, recipe.keeps_short_side);
    fitted.rows.mirrored = is_turned;
    return fitted;
  }
  RandomSequence random = random_of("augment", recipe.seed, key);
  const bool flipped = draw_flip(recipe, key, random);
  ImagePlan plan = draw_crop(recipe, from, wanted, random);
  plan.columns.mirrored = flipped;
  plan.rows.mirrored = is_turned;
  return plan;
}

ErasedBox draw_erased(const ImageRecipe& recipe, const SampleKey& key) {
  RandomSequence random = random_of("erase", recipe.seed, key);
  if (random.uniform() >= recipe.augment.erase) return {};
  const double min_log = portable_log(0.3);
  const double max_log = portable_log(3.3);
  const std::int64_t rows = recipe.image[1];
  const std::int64_t columns = recipe.image[2];
  for (int attempt = 0; attempt < 10; ++attempt) {
    const double area = static_cast<double>(rows * columns) * (0.02 + 0.31 * random.uniform());
    const double ratio = portable_exp(min_log + (max_log - min_log) * random.uniform());
    const auto height = static_cast<std::int64_t>(std::sqrt(area * ratio) + 0.5);
    const auto width = static_cast<std::int64_t>(std::sqrt(area / ratio) + 0.5);
    if (height >= rows || width >= columns) continue;
    const IndexRange drawn = draw_range(random, height, rows);
    return {drawn, draw_range(random, width, columns)};
  }
  return {};
}

ImagePlan widest_plan(const ImageRecipe& recipe, const Shape& image) {
  const Extent from{image[1], image[2]};
  const Extent wanted{recipe.image[1], recipe.image[2]};
  if (recipe.augment.crop == Crop::resized_crop) {
    return {widest_crop(from.height, wanted.height), widest_crop(from.width, wanted.width)};
  }
  if (recipe.augment.crop == Crop::crop_flip) {
    const std::int64_t side = short_side_of_crops(wanted);
    const Extent resized = with_short_side(from, side);
    return {crop_axis(from.height, resized.height, {0, side}, wanted.height),
            crop_axis(from.width, resized.width, {0, side}, wanted.width)};
  }
  return fit(from, wanted, recipe.keeps_short_side);
}

}  // namespace tutti
