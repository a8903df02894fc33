#include "pictures.hpp"

#include "tutti/base/error.hpp"
#include "tutti/data/dataset.hpp"

#include <fmt/format.h>

#include <algorithm>

namespace tutti {
namespace {

constexpr std::int64_t kMinSide = 112;  // in pixels, of an image on the sheet
constexpr std::int64_t kSheetWidth = 1280;
constexpr std::int64_t kMaxPixels = std::int64_t{1} << 26;
constexpr std::int64_t kGap = 10;
constexpr std::int64_t kInnerGap = 4;  // between original and image
constexpr std::uint8_t kWhite = 255;
constexpr std::uint8_t kEmpty = 224;  // the part of a box that an original does not fill

std::int64_t divided_up(std::int64_t number, std::int64_t by) { return (number + by - 1) / by; }

struct Box {
  std::int64_t x = 0;
  std::int64_t y = 0;
  std::int64_t width = 0;
  std::int64_t height = 0;
};

// The largest centered box within another that has the image's aspect ratio.
Box fitted(const Shape& image, const Box& box) {
  Box fitting = box;
  if (image[1] * box.width > image[2] * box.height) {
    fitting.width = std::max<std::int64_t>(1, box.height * image[2] / image[1]);
  } else {
    fitting.height = std::max<std::int64_t>(1, box.width * image[1] / image[2]);
  }
  fitting.x += (box.width - fitting.width) / 2;
  fitting.y += (box.height - fitting.height) / 2;
  return fitting;
}

struct Canvas {
  Shape shape;
  std::vector<std::uint8_t> pixels = std::vector<std::uint8_t>(static_cast<std::size_t>(shape.elements()), kWhite);

  std::uint8_t* row(std::int64_t channel, std::int64_t y) {
    return pixels.data() + (channel * shape[1] + y) * shape[2];
  }
  void fill(const Box& box, std::uint8_t gray) {
    for (std::int64_t channel = 0; channel < shape[0]; ++channel) {
      for (std::int64_t y = box.y; y < box.y + box.height; ++y) std::fill_n(row(channel, y) + box.x, box.width, gray);
    }
  }
  // Each pixel of the box is the mean of the image's pixels that it covers, or repeats one of them.
  void draw(const ImageView& image, const Box& box) {
    const std::int64_t height = image.shape[1];
    const std::int64_t width = image.shape[2];
    for (std::int64_t i = 0; i < shape[0] * box.height * box.width; ++i) {
      const std::int64_t channel = i / (box.height * box.width);
      const std::int64_t y = i / box.width % box.height;
      const std::int64_t x = i % box.width;
      const std::int64_t top = y * height / box.height;
      const std::int64_t left = x * width / box.width;
      const std::int64_t bottom = std::max(top + 1, (y + 1) * height / box.height);
      const std::int64_t right = std::max(left + 1, (x + 1) * width / box.width);
      const std::uint8_t* plane = image.pixels + std::min(channel, image.shape[0] - 1) * height * width;
      std::int64_t sum = 0;
      for (std::int64_t v = top; v < bottom; ++v) {
        for (std::int64_t u = left; u < right; ++u) sum += plane[v * width + u];
      }
      const std::int64_t covered = (bottom - top) * (right - left);
      row(channel, box.y + y)[box.x + x] = static_cast<std::uint8_t>((sum + covered / 2) / covered);
    }
  }
};

}  // namespace

std::vector<std::byte> small_png(const ImageView& image, std::int64_t max_side) {
  const std::int64_t factor = divided_up(std::max({image.shape[1], image.shape[2], std::int64_t{1}}), max_side);
  const std::int64_t height = divided_up(image.shape[1], factor);
  const std::int64_t width = divided_up(image.shape[2], factor);
  Canvas canvas{{image.shape[0] == 3 ? 3 : 1, height, width}};
  canvas.draw(image, {.width = width, .height = height});
  return encode_png({canvas.pixels.data(), canvas.shape});
}

ContactSheet make_contact_sheet(const std::vector<SheetEntry>& entries) {
  const Shape& image = entries.front().image.shape;
  const std::int64_t scale = divided_up(kMinSide, std::min(kMinSide, std::max(image[1], image[2])));
  const std::int64_t width = image[2] * scale;
  const std::int64_t height = image[1] * scale;
  const std::int64_t left = entries.front().original ? width + kInnerGap : 0;  // of the image within its cell
  const std::int64_t count = std::ssize(entries);
  const std::int64_t fitting = std::clamp((kSheetWidth - kGap) / (left + width + kGap), std::int64_t{1}, count);
  const std::int64_t rows = divided_up(count, fitting);
  const std::int64_t columns = divided_up(count, rows);
  if ((left + width + kGap) * columns > kMaxPixels / ((height + kGap) * rows)) {
    throw Error(ErrorSource::usage, fmt::format("--count {}: {} images of {} x {} make too large a picture; give a "
                                                "smaller count",
                                                count, count, image[1], image[2]));
  }
  Canvas canvas{{3, rows * (height + kGap) + kGap, columns * (left + width + kGap) + kGap}};
  for (std::int64_t i = 0; i < count; ++i) {
    const SheetEntry& entry = entries[static_cast<std::size_t>(i)];
    const Box box{kGap + i % columns * (left + width + kGap), kGap + i / columns * (height + kGap), width, height};
    if (entry.original) {
      canvas.fill(box, kEmpty);
      canvas.draw(*entry.original, fitted(entry.original->shape, box));
    }
    canvas.draw(entry.image, {box.x + left, box.y, width, height});
  }
  return {.columns = columns, .enlargement = scale, .png = encode_png({canvas.pixels.data(), canvas.shape})};
}

}  // namespace tutti
