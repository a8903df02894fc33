#include "picture.hpp"

#include "tutti/data/png_image.hpp"

#include <algorithm>
#include <cstdint>

namespace tutti {
namespace {

struct Planes {
  Shape shape;
  std::vector<std::uint8_t> pixels{};
};

// Whole squares of `side` pixels; those at the lower and right edge are as large as is left of them.
Planes shrink(const ImageView& image, std::int64_t side) {
  const std::int64_t height = image.shape[1];
  const std::int64_t width = image.shape[2];
  Planes small{{image.shape[0], (height + side - 1) / side, (width + side - 1) / side}};
  for (std::int64_t c = 0; c < image.shape[0]; ++c) {
    const std::uint8_t* plane = image.pixels + c * height * width;
    for (std::int64_t top = 0; top < height; top += side) {
      for (std::int64_t left = 0; left < width; left += side) {
        const std::int64_t bottom = std::min(top + side, height);
        const std::int64_t right = std::min(left + side, width);
        std::int64_t sum = 0;
        for (std::int64_t y = top; y < bottom; ++y) {
          for (std::int64_t x = left; x < right; ++x) sum += plane[y * width + x];
        }
        const std::int64_t pixels = (bottom - top) * (right - left);
        small.pixels.push_back(static_cast<std::uint8_t>((sum + pixels / 2) / pixels));
      }
    }
  }
  return small;
}

}  // namespace

std::vector<std::byte> thumbnail(const ImageView& image, std::int64_t most) {
  const bool is_colour = image.shape[0] == 3;
  const ImageView seen{image.pixels, {is_colour ? 3 : 1, image.shape[1], image.shape[2]}};
  const std::int64_t longest = std::max(seen.shape[1], seen.shape[2]);
  if (longest <= most) return encode_png(seen);
  const Planes small = shrink(seen, (longest + most - 1) / most);
  return encode_png({small.pixels.data(), small.shape});
}

std::string data_address(std::span<const std::byte> png) {
  constexpr const char* kDigits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string address = "data:image/png;base64,";
  for (std::size_t i = 0; i < png.size(); i += 3) {
    const std::size_t bytes = std::min<std::size_t>(3, png.size() - i);
    std::uint32_t bits = 0;
    for (std::size_t j = 0; j < 3; ++j) bits = bits << 8 | (j < bytes ? std::to_integer<std::uint32_t>(png[i + j]) : 0);
    for (std::size_t j = 0; j < 4; ++j) address += j <= bytes ? kDigits[bits >> (18 - 6 * j) & 63] : '=';
  }
  return address;
}

}  // namespace tutti
