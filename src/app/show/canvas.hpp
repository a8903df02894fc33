#pragma once
// A picture in colour to draw images and names on. What does not fit on it is cut off.

#include "tutti/data/dataset.hpp"

#include <array>
#include <cstdint>
#include <string_view>
#include <vector>

namespace tutti {

using Colour = std::array<std::uint8_t, 3>;

struct Box {
  std::int64_t x = 0;
  std::int64_t y = 0;
  std::int64_t width = 0;
  std::int64_t height = 0;
};

struct Lettering {
  std::int64_t points = 1;  // pixels along the side of a letter's point
  Colour colour{};
};

class Canvas {
 public:
  Canvas(std::int64_t width, std::int64_t height, Colour ground);

  // Borrowed.
  ImageView image() const { return {pixels_.data(), shape_}; }
  void fill(const Box& box, const Colour& colour);
  // Fills the box with the image: each pixel the mean of what it covers of it.
  void draw(const ImageView& image, const Box& box);
  // One line, centred; a text that is wider than the box ends in two dots.
  void write(std::string_view text, const Box& box, const Lettering& lettering);

 private:
  void set(std::int64_t x, std::int64_t y, const Colour& colour);

  Shape shape_;
  std::vector<std::uint8_t> pixels_;  // planes of red, green and blue
};

}  // namespace tutti
