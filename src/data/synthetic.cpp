#include "synthetic.hpp"

#include "tutti/base/error.hpp"
#include "tutti/base/random.hpp"

#include <fmt/format.h>

#include <array>
#include <charconv>
#include <cstddef>
#include <span>

namespace tutti {
namespace {

constexpr std::uint64_t kSetSeed = 0x73796E7468u;
constexpr std::int64_t kCellsPerSide = 4;
constexpr std::int64_t kMostBytes = std::int64_t{1} << 40;
constexpr std::int64_t kMostClasses = 65'536;

// One number of 1 .. most, which `text` must begin with; 0 when it does not.
std::int64_t take_number(std::string_view& text, std::int64_t most) {
  std::int64_t number = 0;
  const auto [end, failure] = std::from_chars(text.begin(), text.end(), number);
  if (failure != std::errc{} || number < 1 || number > most) return 0;
  text.remove_prefix(static_cast<std::size_t>(end - text.begin()));
  return number;
}

bool take_sign(std::string_view& text, char sign) {
  if (!text.starts_with(sign)) return false;
  text.remove_prefix(1);
  return true;
}

// The mean brightness of every cell of a class's pattern.
std::vector<std::uint8_t> draw_cells(int label, std::int64_t channels) {
  RandomSequence random(kSetSeed, {.item = static_cast<std::uint32_t>(label), .purpose = random_purpose("cells")});
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
        // The columns of the cell: those whose place, as a fraction of the width, rounds down to it.
        const std::int64_t end = ((i + 1) * width + kCellsPerSide - 1) / kCellsPerSide;
        for (std::int64_t column = (i * width + kCellsPerSide - 1) / kCellsPerSide; column < end; ++column) {
          noise = next % 4 == 0 ? random.next() : noise >> 8;
          pixels[next++] = static_cast<std::uint8_t>((brightness + (noise & 0xFF)) / 2);
        }
      }
    }
  }
}

}  // namespace

SyntheticSpec parse_synthetic(std::string_view text) {
  std::string_view rest = text;
  std::array<std::int64_t, 4> extents{};
  std::int64_t bytes = 1;
  bool good = true;
  for (std::size_t i = 0; i < extents.size() && good; ++i) {
    good = i == 0 || take_sign(rest, 'x');
    extents[i] = good ? take_number(rest, kMostBytes / bytes) : 0;
    good = extents[i] > 0;
    if (good) bytes *= extents[i];
  }
  good = good && take_sign(rest, ':');
  const std::int64_t classes = good ? take_number(rest, kMostClasses) : 0;
  if (classes < 2 || !rest.empty()) {
    throw Error(ErrorSource::usage,
                fmt::format("--data synthetic:{}: give synthetic:NxCxHxW:classes with 2 to {} classes, and images of "
                            "at most {} bytes in all, for example synthetic:1000x3x32x32:10",
                            text, kMostClasses, kMostBytes));
  }
  return {extents[0], Shape{extents[1], extents[2], extents[3]}, static_cast<int>(classes)};
}

LabelledImages draw_synthetic(const SyntheticSpec& spec, std::int64_t first, std::int64_t count) {
  std::vector<std::vector<std::uint8_t>> cells_of_class;
  for (int label = 0; label < spec.classes; ++label) cells_of_class.push_back(draw_cells(label, spec.image[0]));

  const auto image_bytes = static_cast<std::size_t>(spec.image.elements());
  LabelledImages drawn{spec.image, std::vector<std::uint8_t>(static_cast<std::size_t>(count) * image_bytes), {}};
  drawn.labels.reserve(static_cast<std::size_t>(count));
  for (std::int64_t i = 0; i < count; ++i) {
    RandomSequence random(kSetSeed,
                          {.item = static_cast<std::uint32_t>(first + i), .purpose = random_purpose("synthetic")});
    const auto label = static_cast<std::int32_t>(random.below(static_cast<std::uint32_t>(spec.classes)));
    draw_image(std::span(drawn.images).subspan(static_cast<std::size_t>(i) * image_bytes, image_bytes), spec.image,
               cells_of_class[static_cast<std::size_t>(label)], random);
    drawn.labels.push_back(label);
  }
  return drawn;
}

}  // namespace tutti
