#pragma once
// The ideal shapes of the ten digits as pen strokes. How a sample departs from them, and how ink falls on
// pixels, is the business of glyphs.cpp.

#include <array>
#include <cstdint>
#include <vector>

namespace tutti {

// In eighths of a pixel from the digit's centre, x to the right and y downwards.
struct OutlinePoint {
  std::int32_t x = 0;
  std::int32_t y = 0;
};

enum class Bend { straight, curved };

struct Stroke {
  Bend bend = Bend::straight;
  std::vector<OutlinePoint> points;
};

using Writing = std::vector<Stroke>;

// The ways in which people write each digit 0 .. 9; at least one.
std::array<std::vector<Writing>, 10> digit_writings();

}  // namespace tutti
