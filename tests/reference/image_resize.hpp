#pragma once
// Resizing by its definition, in double, over every pixel of the image: slow and obvious.

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace tutti::reference {

// One channel.
struct Plane {
  std::int64_t height = 0;
  std::int64_t width = 0;
  std::vector<double> values;

  Plane(std::int64_t h, std::int64_t w) : height(h), width(w), values(static_cast<std::size_t>(h * w)) {}
  double& at(std::int64_t y, std::int64_t x) { return values.at(static_cast<std::size_t>(y * width + x)); }
  double at(std::int64_t y, std::int64_t x) const { return values.at(static_cast<std::size_t>(y * width + x)); }
};

// How much of input pixel `in` makes output pixel `out` before the weights are made to add up to one.
inline double triangle(std::int64_t from, std::int64_t to, std::int64_t in, std::int64_t out) {
  const double scale = static_cast<double>(from) / static_cast<double>(to);
  const double centre = (static_cast<double>(out) + 0.5) * scale;
  return std::max(0.0, 1 - std::abs(static_cast<double>(in) + 0.5 - centre) / std::max(1.0, scale));
}

inline Plane resize(const Plane& image, std::int64_t height, std::int64_t width) {
  Plane result(height, width);
  for (std::int64_t y = 0; y < height; ++y) {
    for (std::int64_t x = 0; x < width; ++x) {
      double sum = 0;
      double whole = 0;
      for (std::int64_t from_y = 0; from_y < image.height; ++from_y) {
        const double down = triangle(image.height, height, from_y, y);
        for (std::int64_t from_x = 0; down > 0 && from_x < image.width; ++from_x) {
          const double weight = down * triangle(image.width, width, from_x, x);
          sum += weight * image.at(from_y, from_x);
          whole += weight;
        }
      }
      result.at(y, x) = sum / whole;
    }
  }
  return result;
}

struct Corner {
  std::int64_t top = 0;
  std::int64_t left = 0;
};

// Beyond the image all is 0.
inline Plane cut(const Plane& image, const Corner& corner, std::int64_t height, std::int64_t width) {
  Plane result(height, width);
  for (std::int64_t y = 0; y < height; ++y) {
    for (std::int64_t x = 0; x < width; ++x) {
      const std::int64_t from_y = corner.top + y;
      const std::int64_t from_x = corner.left + x;
      const bool inside = from_y >= 0 && from_y < image.height && from_x >= 0 && from_x < image.width;
      result.at(y, x) = inside ? image.at(from_y, from_x) : 0;
    }
  }
  return result;
}

// With a frame that mirrors the image at its outermost pixels.
inline Plane framed_by_reflection(const Plane& image, std::int64_t frame) {
  Plane result(image.height + 2 * frame, image.width + 2 * frame);
  const auto inside = [](std::int64_t at, std::int64_t length) {
    if (at < 0) return -at;
    return at < length ? at : 2 * length - 2 - at;
  };
  for (std::int64_t y = 0; y < result.height; ++y) {
    for (std::int64_t x = 0; x < result.width; ++x) {
      result.at(y, x) = image.at(inside(y - frame, image.height), inside(x - frame, image.width));
    }
  }
  return result;
}

inline Plane mirrored(const Plane& image) {
  Plane result(image.height, image.width);
  for (std::int64_t y = 0; y < image.height; ++y) {
    for (std::int64_t x = 0; x < image.width; ++x) result.at(y, x) = image.at(y, image.width - 1 - x);
  }
  return result;
}

}  // namespace tutti::reference
