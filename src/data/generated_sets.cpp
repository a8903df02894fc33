#include "tutti/base/error.hpp"
#include "tutti/base/random.hpp"

#include "sources.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cstddef>
#include <functional>
#include <limits>
#include <numeric>
#include <span>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

namespace tutti {
namespace {

// The ideal shapes of the ten digits as pen strokes.

// Outlines: the offset from the digit's center in eighths of a pixel, x to the right and y down. Canvas: kUnit to a
// pixel, from its corner.
struct Point {
  std::int32_t x = 0;
  std::int32_t y = 0;
};

struct Stroke {
  bool is_curved = false;
  std::vector<Point> points;
};

using Writing = std::vector<Stroke>;

// The outlines of each digit 0 .. 9; variants are separated by |. A stroke begins with ~ (curved) or - (straight),
// followed by its points.
constexpr std::array<const char*, 10> kOutlines{
    "~ 0,-72 36,-50 46,0 36,50 0,72 -36,50 -46,0 -36,-50 0,-72",
    "- -24,-44 6,-72 6,72 "
    "| - 2,-72 2,72 "
    "| - -24,-46 4,-72 4,72 - -28,72 36,72",
    "~ -40,-40 -26,-66 8,-72 38,-50 32,-14 0,26 -42,70 - -42,70 44,70 "
    "| ~ -38,-42 -22,-66 8,-72 36,-52 32,-16 4,22 -30,58 -44,62 -34,46 -4,58 24,70 46,58",
    "~ -38,-58 -8,-72 30,-58 32,-28 -6,-6 ~ -6,-6 36,12 38,50 2,72 -40,54 "
    "| - -36,-70 36,-70 -4,-12 ~ -4,-12 36,8 38,48 2,72 -38,56",
    "- 18,72 18,-72 -44,26 46,26 "
    "| - -32,-70 -40,12 44,12 - 22,-52 18,72",
    "- 38,-70 -28,-70 -34,-10 ~ -34,-10 0,-22 36,0 38,38 6,72 -38,56",
    "~ 32,-66 -6,-50 -36,-4 -38,40 -2,72 36,48 32,12 0,-4 -34,24 "
    "| - 14,-72 -34,14 ~ -36,30 -20,2 16,0 36,34 16,68 -18,68 -36,30",
    "- -42,-70 42,-70 -8,72 "
    "| - -42,-70 42,-70 -10,72 - -18,2 30,2 "
    "| ~ -42,-62 0,-68 42,-70 16,-14 -4,72",
    "~ 0,-6 -34,-38 0,-72 34,-38 0,-6 ~ 0,-6 -40,34 0,72 40,34 0,-6 "
    "| ~ 30,-54 0,-72 -32,-44 0,-8 36,36 0,72 -36,36 0,-2 32,-40 24,-62",
    "~ -30,66 6,50 36,4 38,-40 2,-72 -36,-48 -32,-12 0,4 34,-24 "
    "| ~ 34,-34 18,-66 -18,-66 -36,-34 -18,-4 18,-6 34,-34 - 34,-38 26,72",
};

std::vector<Writing> writings_of(const char* outlines) {
  std::vector<Writing> writings(1);
  std::istringstream words(outlines);
  for (std::string word; words >> word;) {
    if (word == "|") {
      writings.emplace_back();
    } else if (word == "~" || word == "-") {
      writings.back().push_back({.is_curved = word == "~", .points = {}});
    } else {
      const std::size_t comma = word.find(',');
      writings.back().back().points.push_back({std::stoi(word), std::stoi(word.substr(comma + 1))});
    }
  }
  return writings;
}

constexpr std::uint64_t kGlyphSeed = 0x676C79706873u;
constexpr int kSide = 28;
constexpr int kPixels = kSide * kSide;
constexpr int kUnit = 256;  // of canvas length in one pixel
constexpr int kCenter = kSide * kUnit / 2;
constexpr int kCurveSteps = 4;

using Image = std::span<std::uint8_t, kPixels>;

using Path = std::vector<Point>;

// Full ink within `core` of a stroke's middle line, fading to none at `reach`.
struct Pen {
  std::int32_t core = 0;
  std::int32_t reach = 0;
  std::int32_t ink = 0;
};

// The distance of each pixel's center from the nearest stroke.
class DistanceField {
 public:
  DistanceField() { squares_.fill(std::numeric_limits<std::int32_t>::max()); }

  // May skip pixels farther away than `reach`.
  void add(const Path& path, std::int32_t reach) {
    for (std::size_t i = 1; i < path.size(); ++i) add_segment(path[i - 1], path[i], reach);
  }

  void ink(Image image, const Pen& pen) const {
    const std::int32_t none = pen.reach * pen.reach;
    const std::int32_t full = pen.core * pen.core;
    for (std::size_t i = 0; i < squares_.size(); ++i) {
      if (squares_[i] >= none) continue;
      const std::int32_t fade = std::min(kUnit, (none - squares_[i]) * kUnit / (none - full));
      image[i] = std::max(image[i], static_cast<std::uint8_t>(pen.ink * fade / kUnit));
    }
  }

 private:
  static std::int64_t square_to_segment(Point p, Point a, Point b) {
    const std::int64_t along_x = b.x - a.x;
    const std::int64_t along_y = b.y - a.y;
    const std::int64_t to_x = p.x - a.x;
    const std::int64_t to_y = p.y - a.y;
    const std::int64_t length_square = along_x * along_x + along_y * along_y;
    const std::int64_t projection = to_x * along_x + to_y * along_y;
    if (projection <= 0) return to_x * to_x + to_y * to_y;
    if (projection >= length_square) {
      return (to_x - along_x) * (to_x - along_x) + (to_y - along_y) * (to_y - along_y);
    }
    const std::int64_t area = to_x * along_y - to_y * along_x;
    return area * area / length_square;
  }

  void add_segment(Point a, Point b, std::int32_t reach) {
    const auto first = [reach](std::int32_t low) { return std::clamp((low - reach) / kUnit, 0, kSide); };
    const auto last = [reach](std::int32_t high) { return std::clamp((high + reach) / kUnit, -1, kSide - 1); };
    const auto [left, right] = std::minmax(a.x, b.x);
    const auto [top, bottom] = std::minmax(a.y, b.y);
    for (int row = first(top); row <= last(bottom); ++row) {
      for (int column = first(left); column <= last(right); ++column) {
        const Point center{column * kUnit + kUnit / 2, row * kUnit + kUnit / 2};
        std::int32_t& square = squares_[static_cast<std::size_t>(row * kSide + column)];
        const std::int64_t here = square_to_segment(center, a, b);
        if (here < square) square = static_cast<std::int32_t>(here);
      }
    }
  }

  std::array<std::int32_t, kPixels> squares_;
};

// Rotates, slants, scales and moves outline points onto the canvas.
struct Pose {
  std::int32_t cosine = 0;  // of 16384
  std::int32_t sine = 0;
  std::int32_t slant = 0;  // of 256
  std::int32_t width = 0;  // canvas units per outline unit, of 16
  std::int32_t height = 0;
  std::int32_t shift_x = 0;
  std::int32_t shift_y = 0;

  Point place(Point p) const {
    const std::int32_t y = p.y * height / 16;
    const std::int32_t x = p.x * width / 16 - y * slant / 256;
    return {kCenter + shift_x + (x * cosine - y * sine) / 16384, kCenter + shift_y + (x * sine + y * cosine) / 16384};
  }
};

Pose draw_pose(RandomSequence& random) {
  Pose pose;
  // The rational points of the circle: no sine is needed.
  const std::int32_t half_tangent = random.between(-48, 48);
  const std::int32_t square = half_tangent * half_tangent;
  pose.cosine = static_cast<std::int32_t>(std::int64_t{65536 - square} * 16384 / (65536 + square));
  pose.sine = static_cast<std::int32_t>(std::int64_t{512 * half_tangent} * 16384 / (65536 + square));
  pose.slant = random.between(-70, 90);
  const std::int32_t size = random.between(360, 540);
  pose.width = size * random.between(200, 300) / kUnit;
  pose.height = size * random.between(220, 290) / kUnit;
  pose.shift_x = random.between(-5 * kUnit / 2, 5 * kUnit / 2);
  pose.shift_y = random.between(-5 * kUnit / 2, 5 * kUnit / 2);
  return pose;
}

// Point `step` of kCurveSteps on the Catmull-Rom curve from `from` to `to`.
std::int32_t on_curve(std::int32_t before, std::int32_t from, std::int32_t to, std::int32_t after, std::int32_t step) {
  constexpr std::int32_t n = kCurveSteps;
  return (2 * from * n * n * n + (to - before) * step * n * n +
          (2 * before - 5 * from + 4 * to - after) * step * step * n +
          (3 * (from - to) + after - before) * step * step * step) /
         (2 * n * n * n);
}

// A curve that ends where it began is closed.
Path curve_through(const Path& points) {
  const bool closed = points.front().x == points.back().x && points.front().y == points.back().y;
  const std::size_t last = points.size() - 1;
  Path path{points.front()};
  for (std::size_t i = 0; i < last; ++i) {
    const Point before = i > 0 ? points[i - 1] : closed ? points[last - 1] : points[0];
    const Point after = i + 2 <= last ? points[i + 2] : closed ? points[1] : points[last];
    for (std::int32_t step = 1; step <= kCurveSteps; ++step) {
      path.push_back({on_curve(before.x, points[i].x, points[i + 1].x, after.x, step),
                      on_curve(before.y, points[i].y, points[i + 1].y, after.y, step)});
    }
  }
  return path;
}

// A stroke with this sample's pose and wobbles. Equal points stay equal, so that closed curves stay closed and
// strokes that meet still meet.
Path draw_stroke(const Stroke& stroke, const Pose& pose, std::span<const Point> wobbles) {
  Path points;
  for (const Point& p : stroke.points) {
    const auto key = static_cast<std::size_t>(p.x * 7 + p.y * 13 + 4096) % wobbles.size();
    points.push_back(pose.place({p.x + wobbles[key].x, p.y + wobbles[key].y}));
  }
  return stroke.is_curved ? curve_through(points) : points;
}

Pen draw_pen(RandomSequence& random, std::int32_t min_ink, std::int32_t max_ink) {
  const std::int32_t core = random.between(kUnit * 3 / 8, kUnit * 9 / 8);
  const std::int32_t edge = random.between(kUnit * 5 / 8, kUnit * 9 / 8);
  return {core, core + edge, random.between(min_ink, max_ink)};
}

void draw_digit(Image image, std::span<const Writing> writings, RandomSequence& random) {
  const Writing& writing = writings[random.below(static_cast<std::uint32_t>(writings.size()))];
  const Pose pose = draw_pose(random);
  const Pen pen = draw_pen(random, 160, 255);
  std::array<Point, 31> wobbles;
  for (Point& wobble : wobbles) wobble = {random.between(-6, 6), random.between(-6, 6)};
  DistanceField field;
  for (const Stroke& stroke : writing) field.add(draw_stroke(stroke, pose, wobbles), pen.reach);
  field.ink(image, pen);
}

// Short faint lines that belong to no digit.
void draw_distractors(Image image, RandomSequence& random) {
  const std::uint32_t count = random.below(4);
  for (std::uint32_t i = 0; i < count; ++i) {
    const Point start{random.between(0, kSide * kUnit), random.between(0, kSide * kUnit)};
    const Point end{start.x + random.between(-7 * kUnit, 7 * kUnit), start.y + random.between(-7 * kUnit, 7 * kUnit)};
    const Pen pen = draw_pen(random, 50, 140);
    DistanceField field;
    field.add({start, end}, pen.reach);
    field.ink(image, pen);
  }
}

// A background, and noise on every pixel: the sum of two random numbers, which is mostly close to 0.
void draw_noise(Image image, RandomSequence& random) {
  const std::int32_t background = random.between(0, 32);
  const std::int32_t strength = random.between(8, 48);
  for (std::size_t i = 0; i < image.size(); i += 2) {
    const std::uint32_t word = random.next();
    for (std::size_t k = 0; k < 2; ++k) {
      const auto first = static_cast<std::int32_t>(word >> (16 * k) & 0xFF);
      const auto second = static_cast<std::int32_t>(word >> (16 * k + 8) & 0xFF);
      const std::int32_t noise = (first + second - 255) * strength / 256;
      const std::int32_t ink = background + image[i + k] * (255 - background) / 255;
      image[i + k] = static_cast<std::uint8_t>(std::clamp(ink + noise, 0, 255));
    }
  }
}

int digit_of(std::int64_t sample) {
  std::array<std::int64_t, 10> digits;
  std::iota(digits.begin(), digits.end(), 0);
  RandomSequence random(kGlyphSeed,
                        {.item = static_cast<std::uint32_t>(sample / 10), .purpose = random_purpose("glyph labels")});
  shuffle(digits, random);
  return static_cast<int>(digits[static_cast<std::size_t>(sample % 10)]);
}

constexpr std::uint64_t kSyntheticSeed = 0x73796E7468u;
constexpr std::int64_t kCellsPerSide = 4;
constexpr std::int64_t kMaxBytes = std::int64_t{1} << 40;
constexpr std::int64_t kMaxClasses = 65'536;

// The mean brightness of every cell of a class's pattern.
std::vector<std::uint8_t> draw_cells(int label, std::int64_t channels) {
  RandomSequence random(kSyntheticSeed,
                        {.item = static_cast<std::uint32_t>(label), .purpose = random_purpose("cells")});
  std::vector<std::uint8_t> cells(static_cast<std::size_t>(channels * kCellsPerSide * kCellsPerSide));
  for (auto& cell : cells) cell = static_cast<std::uint8_t>(random.next() >> 24);
  return cells;
}

void draw_image(std::span<std::uint8_t> pixels, const Shape& image, std::span<const std::uint8_t> cells,
                RandomSequence& random) {
  const std::int64_t width = image[2];
  std::size_t next = 0;
  std::uint32_t noise = 0;
  for (std::int64_t channel = 0; channel < image[0]; ++channel) {
    for (std::int64_t row = 0; row < image[1]; ++row) {
      const std::int64_t row_of_cells = channel * kCellsPerSide + row * kCellsPerSide / image[1];
      for (std::int64_t i = 0; i < kCellsPerSide; ++i) {
        const unsigned brightness = cells[static_cast<std::size_t>(row_of_cells * kCellsPerSide + i)];
        // The columns whose position, as a fraction of the width, rounds down to this cell.
        const std::int64_t end = ((i + 1) * width + kCellsPerSide - 1) / kCellsPerSide;
        for (std::int64_t column = (i * width + kCellsPerSide - 1) / kCellsPerSide; column < end; ++column) {
          noise = next % 4 == 0 ? random.next() : noise >> 8;
          pixels[next++] = static_cast<std::uint8_t>((brightness + (noise & 0xFF)) / 2);
        }
      }
    }
  }
}

// Fills the pixels of a sample and returns its label.
using Draw = std::function<int(std::int64_t sample, std::span<std::uint8_t> pixels)>;

// Samples first .. first + count - 1 of an infinite series.
LoadedSet draw_set(DatasetInfo info, std::int64_t first, std::int64_t count, const Draw& draw, GrowingMemory& block) {
  LoadedSet set;
  const auto image_bytes = static_cast<std::size_t>(info.image.elements());
  const Pixels pixels = add_pixels(block, static_cast<std::size_t>(count) * image_bytes);
  for (std::int64_t i = 0; i < count; ++i) {
    set.labels.push_back(
        draw(first + i, pixels.bytes().subspan(static_cast<std::size_t>(i) * image_bytes, image_bytes)));
  }
  set.info = std::move(info);
  set.pixels = pixels;
  return set;
}

LoadedPair draw_sets(const DatasetInfo& info, std::int64_t test_samples, GrowingMemory& block, const Draw& draw) {
  DatasetInfo test = info;
  test.name += " (test)";
  return {draw_set(info, 0, info.samples, draw, block), draw_set(test, info.samples, test_samples, draw, block), {}};
}

}  // namespace

LoadedPair draw_glyphs(GrowingMemory& block) {
  std::vector<std::vector<Writing>> writings;
  for (const char* const outlines : kOutlines) writings.push_back(writings_of(outlines));
  const DatasetInfo info{.name = "glyphs",
                         .image = Shape{1, kSide, kSide},
                         .classes = 10,
                         .class_names = {"0", "1", "2", "3", "4", "5", "6", "7", "8", "9"},
                         .samples = 20'000};
  return draw_sets(info, 4'000, block, [&](std::int64_t sample, std::span<std::uint8_t> pixels) {
    const Image image(pixels.data(), kPixels);
    const int digit = digit_of(sample);
    RandomSequence random(kGlyphSeed, {.item = static_cast<std::uint32_t>(sample), .purpose = random_purpose("glyph")});
    draw_digit(image, writings[static_cast<std::size_t>(digit)], random);
    draw_distractors(image, random);
    draw_noise(image, random);
    return digit;
  });
}

DatasetInfo parse_synthetic(const std::string& name) {
  const std::string_view text = std::string_view(name).substr(kSyntheticPrefix.size());
  std::array<std::int64_t, 5> numbers{};  // N, C, H, W, classes
  constexpr std::string_view kSigns = "xxx:";
  const char* const end = text.data() + text.size();
  const char* at = text.data();
  std::int64_t bytes = 1;
  std::size_t read = 0;
  for (; read < numbers.size(); ++read) {
    const bool is_classes = read == kSigns.size();
    const auto [rest, status] = std::from_chars(at, end, numbers[read]);
    const std::int64_t most = is_classes ? kMaxClasses : kMaxBytes / bytes;
    if (status != std::errc{} || numbers[read] < 1 || numbers[read] > most) break;
    if (is_classes ? rest != end : rest == end || *rest != kSigns[read]) break;
    bytes *= numbers[read];
    at = rest + 1;
  }
  const auto [samples, channels, height, width, classes] = numbers;
  if (read < numbers.size() || classes < 2) {
    throw Error(ErrorSource::usage,
                fmt::format("--data synthetic:{}: give synthetic:NxCxHxW:classes with 2 to {} classes, and images of "
                            "at most {} bytes in all, for example synthetic:1000x3x32x32:10",
                            text, kMaxClasses, kMaxBytes));
  }
  return {
      .name = name, .image = Shape{channels, height, width}, .classes = static_cast<int>(classes), .samples = samples};
}

LoadedPair draw_synthetic(const std::string& name, GrowingMemory& block) {
  const DatasetInfo info = parse_synthetic(name);
  std::vector<std::vector<std::uint8_t>> cells;  // by class
  for (int label = 0; label < info.classes; ++label) cells.push_back(draw_cells(label, info.image[0]));
  const std::int64_t test_samples = std::max<std::int64_t>(1, info.samples / 10);
  return draw_sets(info, test_samples, block, [&](std::int64_t sample, std::span<std::uint8_t> pixels) {
    RandomSequence random(kSyntheticSeed,
                          {.item = static_cast<std::uint32_t>(sample), .purpose = random_purpose("synthetic")});
    const std::uint32_t label = random.below(static_cast<std::uint32_t>(info.classes));
    draw_image(pixels, info.image, cells[label], random);
    return static_cast<int>(label);
  });
}

}  // namespace tutti
