#include "image_operations.hpp"

#include "tutti/base/portable_math.hpp"
#include "tutti/base/random.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>
#include <utility>
#include <vector>

namespace tutti {
namespace {

using Bytes = std::span<std::uint8_t>;
using Table = std::array<std::uint8_t, 256>;

std::uint8_t clamped(double value) { return static_cast<std::uint8_t>(std::clamp(value, 0.0, 255.0)); }

// Output x, y is the input at a x + b y + c, d x + e y + f, or black, for the centers of pixels.
struct Affine {
  double a = 1, b = 0, c = 0;
  double d = 0, e = 1, f = 0;
};

// The nearest pixel, in fixed point.
void transform(const Affine& map, const Shape& image, Bytes pixels) {
  const auto fixed = [](double value) { return static_cast<std::int64_t>(std::floor(value * 65536 + 0.5)); };
  const std::int64_t height = image[1];
  const std::int64_t width = image[2];
  const std::vector<std::uint8_t> before(pixels.begin(), pixels.end());
  const std::int64_t first_x = fixed(map.c + map.a * 0.5 + map.b * 0.5);
  const std::int64_t first_y = fixed(map.f + map.d * 0.5 + map.e * 0.5);
  auto output = pixels.begin();
  for (std::int64_t plane = 0; plane < image[0]; ++plane) {
    for (std::int64_t y = 0; y < height; ++y) {
      for (std::int64_t x = 0; x < width; ++x) {
        const std::int64_t from_x = (first_x + x * fixed(map.a) + y * fixed(map.b)) >> 16;
        const std::int64_t from_y = (first_y + x * fixed(map.d) + y * fixed(map.e)) >> 16;
        const bool inside = from_x >= 0 && from_x < width && from_y >= 0 && from_y < height;
        *output++ = inside ? before[static_cast<std::size_t>((plane * height + from_y) * width + from_x)] : 0;
      }
    }
  }
}

// Counterclockwise, about the center.
Affine rotation(double degrees, const Shape& image) {
  const double turns = degrees / 180;
  const double cosine = portable_cospi(turns);
  const double sine = std::copysign(portable_cospi(std::abs(turns) - 0.5), turns);
  const double y = static_cast<double>(image[1]) / 2;
  const double x = static_cast<double>(image[2]) / 2;
  return {
      .a = cosine, .b = -sine, .c = x - cosine * x + sine * y, .d = sine, .e = cosine, .f = y - sine * x - cosine * y};
}

// From `other` towards the image and beyond.
void blend(std::span<const std::uint8_t> other, float factor, Bytes pixels) {
  for (std::size_t i = 0; i < pixels.size(); ++i) {
    const auto from = static_cast<float>(other[i]);
    pixels[i] = clamped(static_cast<double>(from + factor * (static_cast<float>(pixels[i]) - from)));
  }
}

// The luma of every pixel, for each channel.
std::vector<std::uint8_t> gray(const Shape& image, std::span<const std::uint8_t> pixels) {
  std::vector<std::uint8_t> values(pixels.begin(), pixels.end());
  if (image[0] == 1) return values;
  const std::size_t plane = pixels.size() / 3;
  for (std::size_t i = 0; i < pixels.size(); ++i) {
    const std::size_t at = i % plane;
    values[i] = static_cast<std::uint8_t>(
        (pixels[at] * 19595 + pixels[at + plane] * 38470 + pixels[at + 2 * plane] * 7471 + 0x8000) >> 16);
  }
  return values;
}

std::vector<std::uint8_t> mean_gray(const Shape& image, std::span<const std::uint8_t> pixels) {
  std::vector<std::uint8_t> values = gray(image, pixels);
  const double sum = std::accumulate(values.begin(), values.end(), 0.0);
  std::ranges::fill(values, clamped(sum / static_cast<double>(values.size()) + 0.5));
  return values;
}

// Each pixel inside becomes a mean in which it counts 5 times and its neighbors once.
std::vector<std::uint8_t> smooth(const Shape& image, std::span<const std::uint8_t> pixels) {
  std::vector<std::uint8_t> values(pixels.begin(), pixels.end());
  const std::int64_t width = image[2];
  for (std::int64_t i = 0; i < std::ssize(pixels); ++i) {
    const std::int64_t x = i % width;
    const std::int64_t y = i / width % image[1];
    if (x == 0 || y == 0 || x == width - 1 || y == image[1] - 1) continue;
    int sum = 4 * pixels[static_cast<std::size_t>(i)];
    for (const std::int64_t row : {i - width, i, i + width}) {
      for (const std::int64_t at : {row - 1, row, row + 1}) sum += pixels[static_cast<std::size_t>(at)];
    }
    values[static_cast<std::size_t>(i)] = static_cast<std::uint8_t>((2 * sum + 13) / 26);
  }
  return values;
}

void look_up(const Table& table, Bytes pixels) {
  for (std::uint8_t& pixel : pixels) pixel = table[pixel];
}

template <class Function>
Table table_of(Function value) {
  Table table{};
  for (int i = 0; i < 256; ++i) table[static_cast<std::size_t>(i)] = clamped(value(i));
  return table;
}

void auto_contrast(Bytes channel) {
  const auto [min, max] = std::ranges::minmax(channel);
  if (min == max) return;
  const double scale = 255.0 / (max - min);
  const double offset = -min * scale;
  look_up(table_of([&](int pixel) { return pixel * scale + offset; }), channel);
}

void equalize(Bytes channel) {
  std::array<std::int64_t, 256> counts{};
  for (const std::uint8_t pixel : channel) ++counts[pixel];
  const std::int64_t brightest = counts[std::ranges::max(channel)];
  const std::int64_t step = (std::ssize(channel) - brightest) / 255;
  if (step == 0) return;
  std::int64_t darker = step / 2;
  look_up(table_of([&](int pixel) {
            const std::int64_t value = darker / step;
            darker += counts[static_cast<std::size_t>(pixel)];
            return static_cast<double>(value);
          }),
          channel);
}

// The hue, saturation and value of a color, as bytes.
struct Hsv {
  std::uint8_t hue = 0;
  std::uint8_t saturation = 0;
  std::uint8_t value = 0;
};

Hsv hsv_of(std::uint8_t red, std::uint8_t green, std::uint8_t blue) {
  const std::uint8_t max = std::max({red, green, blue});
  const std::uint8_t min = std::min({red, green, blue});
  if (max == min) return {.value = max};
  const auto range = static_cast<float>(max - min);
  const auto below = [&](std::uint8_t channel) { return static_cast<float>(max - channel) / range; };
  float sixths = 0;
  if (red == max) {
    sixths = below(blue) - below(green);
  } else if (green == max) {
    sixths = static_cast<float>(2.0 + below(red) - below(blue));
  } else {
    sixths = static_cast<float>(4.0 + below(green) - below(red));
  }
  const auto circle = static_cast<float>(std::fmod(sixths / 6.0 + 1.0, 1.0));
  return {.hue = static_cast<std::uint8_t>(circle * 255.0),
          .saturation = static_cast<std::uint8_t>(range / static_cast<float>(max) * 255.0),
          .value = max};
}

std::array<std::uint8_t, 3> rgb_of(const Hsv& color) {
  const std::uint8_t v = color.value;
  if (color.saturation == 0) return {v, v, v};
  const double sixths = static_cast<float>(color.hue) * 6.0 / 255.0;
  const int sector = static_cast<int>(sixths);
  const auto within = static_cast<float>(sixths - sector);
  const float saturation = static_cast<float>(color.saturation) / 255.0f;
  const auto darker = [&](double by) { return clamped(std::round(v * (1.0 - by))); };
  const std::uint8_t p = darker(saturation);
  const std::uint8_t q = darker(saturation * within);
  const std::uint8_t t = darker(saturation * (1.0 - within));
  switch (sector % 6) {
    case 0:
      return {v, t, p};
    case 1:
      return {q, v, p};
    case 2:
      return {p, v, t};
    case 3:
      return {p, q, v};
    case 4:
      return {t, p, v};
    default:
      return {v, p, q};
  }
}

// Turns the hue by a share of the circle.
void turn_hue(double share, const Shape& image, Bytes pixels) {
  if (image[0] != 3) return;
  const auto by = static_cast<int>(share * 255);
  const std::size_t plane = pixels.size() / 3;
  for (std::size_t i = 0; i < plane; ++i) {
    Hsv color = hsv_of(pixels[i], pixels[plane + i], pixels[2 * plane + i]);
    color.hue = static_cast<std::uint8_t>(color.hue + by);
    const auto rgb = rgb_of(color);
    for (std::size_t c = 0; c < 3; ++c) pixels[c * plane + i] = rgb[c];
  }
}

// As torch.linspace(from, to, 31) in f32, whose products are not rounded before they are added.
double spaced(double from, double to, int bin) {
  const double step = static_cast<float>(to - from) / 30.0f;
  return static_cast<float>(bin < 15 ? from + step * bin : to - step * (30 - bin));
}

constexpr std::uint32_t kDrawn = static_cast<std::uint32_t>(Operation::hue);  // operations of trivial and randaugment

void draw_jitter(const ColorJitter& jitter, RandomSequence random, std::vector<ImageOperation>& operations) {
  std::array<ImageOperation, 4> drawn{};
  const std::array<std::pair<Operation, double>, 4> ranges{{{Operation::brightness, jitter.brightness},
                                                            {Operation::contrast, jitter.contrast},
                                                            {Operation::color, jitter.saturation},
                                                            {Operation::hue, jitter.hue}}};
  for (std::size_t i = 0; i < ranges.size(); ++i) {
    const auto& [kind, max] = ranges[i];
    const double min = kind == Operation::hue ? -max : std::max(-1.0, -max);
    drawn[i] = {max > 0 ? kind : Operation::identity, min + (max - min) * random.uniform()};
  }
  for (std::uint32_t left = drawn.size(); left > 1; --left) std::swap(drawn[left - 1], drawn[random.below(left)]);
  operations.insert(operations.end(), drawn.begin(), drawn.end());
}

}  // namespace

ImageOperation operation_of(Operation kind, int bin, bool negative, Magnitudes range, const Shape& image) {
  const bool is_wide = range == Magnitudes::wide;
  const double sign = negative ? -1 : 1;
  const auto shift = [&](std::int64_t length) {
    const double most = is_wide ? 32 : 150.0 / 331.0 * static_cast<double>(length);
    return sign * std::trunc(spaced(0, most, bin));
  };
  switch (kind) {
    case Operation::identity:
    case Operation::auto_contrast:
    case Operation::equalize:
    case Operation::hue:
      return {kind};
    case Operation::translate_x:
      return {kind, shift(image[2])};
    case Operation::translate_y:
      return {kind, shift(image[1])};
    case Operation::rotate:
      return {kind, sign * spaced(0, is_wide ? 135 : 30, bin)};
    case Operation::posterize:
      return {kind, 8 - std::floor((is_wide ? bin / 5.0 : bin / 7.5) + 0.5)};
    case Operation::solarize:
      return {kind, spaced(255, 0, bin)};
    case Operation::shear_x:
    case Operation::shear_y:
      return {kind, sign * spaced(0, is_wide ? 0.99f : 0.3f, bin)};
    case Operation::brightness:
    case Operation::color:
    case Operation::contrast:
    case Operation::sharpness:
      break;
  }
  return {kind, sign * spaced(0, is_wide ? 0.99f : 0.9f, bin)};
}

std::vector<ImageOperation> draw_operations(const Augment& augment, std::uint64_t seed, const SampleKey& key,
                                            const Shape& image) {
  std::vector<ImageOperation> operations;
  if (augment.rotate > 0) {
    const double turn = 2 * random_of("rotate", seed, key).uniform() - 1;
    operations.push_back({Operation::rotate, augment.rotate * turn});
  }
  if (augment.jitter != ColorJitter{}) draw_jitter(augment.jitter, random_of("color jitter", seed, key), operations);
  if (augment.trivial) {
    RandomSequence random = random_of("trivial augment", seed, key);
    const auto kind = static_cast<Operation>(random.below(kDrawn));
    const auto bin = static_cast<int>(random.below(31));
    operations.push_back(operation_of(kind, bin, random.below(2) != 0, Magnitudes::wide, image));
  }
  RandomSequence random = random_of("rand augment", seed, key);
  for (int i = 0; i < augment.rand_augment.operations; ++i) {
    const auto kind = static_cast<Operation>(random.below(kDrawn));
    operations.push_back(
        operation_of(kind, augment.rand_augment.magnitude, random.below(2) != 0, Magnitudes::rand_augment, image));
  }
  return operations;
}

void apply(const ImageOperation& operation, const Shape& image, std::span<std::uint8_t> pixels) {
  const double magnitude = operation.magnitude;
  const auto factor = static_cast<float>(1 + magnitude);
  const auto each_channel = [&](void (*change)(Bytes)) {
    const std::size_t plane = pixels.size() / static_cast<std::size_t>(image[0]);
    for (std::size_t first = 0; first < pixels.size(); first += plane) change(pixels.subspan(first, plane));
  };
  switch (operation.kind) {
    case Operation::identity:
      return;
    case Operation::shear_x:
      return transform({.b = magnitude}, image, pixels);
    case Operation::shear_y:
      return transform({.d = magnitude}, image, pixels);
    case Operation::translate_x:
      return transform({.c = -magnitude}, image, pixels);
    case Operation::translate_y:
      return transform({.f = -magnitude}, image, pixels);
    case Operation::rotate:
      return transform(rotation(magnitude, image), image, pixels);
    case Operation::brightness:
      return blend(std::vector<std::uint8_t>(pixels.size()), factor, pixels);
    case Operation::color:
      return blend(gray(image, pixels), factor, pixels);
    case Operation::contrast:
      return blend(mean_gray(image, pixels), factor, pixels);
    case Operation::sharpness:
      return blend(smooth(image, pixels), factor, pixels);
    case Operation::posterize: {
      const int mask = 256 - (1 << (8 - static_cast<int>(magnitude)));
      return look_up(table_of([&](int pixel) { return pixel & mask; }), pixels);
    }
    case Operation::solarize:
      return look_up(table_of([&](int pixel) { return pixel < magnitude ? pixel : 255 - pixel; }), pixels);
    case Operation::auto_contrast:
      return each_channel(auto_contrast);
    case Operation::equalize:
      return each_channel(equalize);
    case Operation::hue:
      return turn_hue(magnitude, image, pixels);
  }
}

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
