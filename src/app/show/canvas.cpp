#include "canvas.hpp"

#include "letters.hpp"

#include <algorithm>

namespace tutti {
namespace {

struct Run {
  std::int64_t begin;
  std::int64_t end;
};

// The pixels of `from` that pixel `at` of `to` covers: one at least.
Run covered(std::int64_t at, std::int64_t to, std::int64_t from) {
  const std::int64_t begin = at * from / to;
  return {begin, std::max(begin + 1, (at + 1) * from / to)};
}

std::uint8_t mean_of(const std::uint8_t* plane, std::int64_t stride, Run rows, Run columns) {
  std::int64_t sum = 0;
  for (std::int64_t y = rows.begin; y < rows.end; ++y) {
    for (std::int64_t x = columns.begin; x < columns.end; ++x) sum += plane[y * stride + x];
  }
  const std::int64_t pixels = (rows.end - rows.begin) * (columns.end - columns.begin);
  return static_cast<std::uint8_t>((sum + pixels / 2) / pixels);
}

constexpr std::int64_t kPitch = kLetterWidth + 1;

// As many as fit into so many pixels, the last two of them dots where letters are left out.
std::vector<Letter> fitting(std::string_view text, std::int64_t width, std::int64_t points) {
  std::vector<Letter> letters = letters_of(text);
  const auto most = static_cast<std::size_t>(std::max<std::int64_t>(0, (width / points + 1) / kPitch));
  if (letters.size() <= most) return letters;
  letters.resize(most);
  const std::vector<Letter> dots = letters_of("..");
  std::copy_n(dots.begin(), std::min(most, dots.size()),
              letters.end() - static_cast<std::ptrdiff_t>(std::min(most, dots.size())));
  return letters;
}

}  // namespace

Canvas::Canvas(std::int64_t width, std::int64_t height, Colour ground) : shape_{3, height, width} {
  for (const std::uint8_t value : ground)
    pixels_.insert(pixels_.end(), static_cast<std::size_t>(width * height), value);
}

void Canvas::set(std::int64_t x, std::int64_t y, const Colour& colour) {
  if (x < 0 || y < 0 || y >= shape_[1] || x >= shape_[2]) return;
  for (std::size_t c = 0; c < colour.size(); ++c) {
    pixels_[c * static_cast<std::size_t>(shape_[1] * shape_[2]) + static_cast<std::size_t>(y * shape_[2] + x)] =
        colour[c];
  }
}

void Canvas::fill(const Box& box, const Colour& colour) {
  for (std::int64_t y = 0; y < box.height; ++y) {
    for (std::int64_t x = 0; x < box.width; ++x) set(box.x + x, box.y + y, colour);
  }
}

void Canvas::draw(const ImageView& image, const Box& box) {
  const std::int64_t plane = image.shape[1] * image.shape[2];
  for (std::int64_t y = 0; y < box.height; ++y) {
    const Run rows = covered(y, box.height, image.shape[1]);
    for (std::int64_t x = 0; x < box.width; ++x) {
      const Run columns = covered(x, box.width, image.shape[2]);
      Colour colour{};
      for (std::size_t c = 0; c < colour.size(); ++c) {
        const auto channel = std::min(static_cast<std::int64_t>(c), image.shape[0] - 1);
        colour[c] = mean_of(image.pixels + channel * plane, image.shape[2], rows, columns);
      }
      set(box.x + x, box.y + y, colour);
    }
  }
}

void Canvas::write(std::string_view text, const Box& box, const Lettering& lettering) {
  const std::vector<Letter> letters = fitting(text, box.width, lettering.points);
  const std::int64_t width = (std::ssize(letters) * kPitch - 1) * lettering.points;
  const std::int64_t left = box.x + (box.width - width) / 2;
  const std::int64_t top = box.y + (box.height - kLetterHeight * lettering.points) / 2;
  for (std::int64_t i = 0; i < std::ssize(letters); ++i) {
    for (std::int64_t y = 0; y < kLetterHeight * lettering.points; ++y) {
      const unsigned row = letters[static_cast<std::size_t>(i)][static_cast<std::size_t>(y / lettering.points)];
      for (std::int64_t x = 0; x < kLetterWidth * lettering.points; ++x) {
        const bool is_ink = (row >> (kLetterWidth - 1 - x / lettering.points) & 1U) != 0;
        if (is_ink) set(left + i * kPitch * lettering.points + x, top + y, lettering.colour);
      }
    }
  }
}

}  // namespace tutti
