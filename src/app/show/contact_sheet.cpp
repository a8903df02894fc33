#include "contact_sheet.hpp"

#include "tutti/base/error.hpp"
#include "tutti/data/png_image.hpp"

#include "letters.hpp"

#include <fmt/format.h>

#include <algorithm>

namespace tutti {
namespace {

constexpr std::int64_t kLeastSide = 112;  // in pixels, of an image on the sheet
constexpr std::int64_t kSheetWidth = 1280;
constexpr std::int64_t kMostPixels = std::int64_t{1} << 26;
constexpr std::int64_t kGap = 10;
constexpr std::int64_t kInnerGap = 4;  // between original and image
constexpr std::int64_t kNamePoints = 2;
constexpr std::int64_t kNameHeight = kLetterHeight * kNamePoints + 6;
constexpr std::int64_t kNoteHeight = kLetterHeight + 6;

constexpr Colour kGround{255, 255, 255};
constexpr Colour kInk{0, 0, 0};
constexpr Colour kNoteInk{96, 96, 96};
constexpr Colour kEmpty{224, 224, 224};  // where an original leaves its box empty

std::int64_t divided_up(std::int64_t number, std::int64_t by) { return (number + by - 1) / by; }

// The largest box of the image's proportions within another, in its middle.
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

}  // namespace

ContactSheet::ContactSheet(const std::vector<SheetEntry>& entries) : entries_(entries) {
  const Shape& image = entries.front().image.shape;
  scale_ = divided_up(kLeastSide, std::min(kLeastSide, std::max(image[1], image[2])));
  image_ = {.width = image[2] * scale_, .height = image[1] * scale_};
  cell_ = {.width = entries.front().original ? 2 * image_.width + kInnerGap : image_.width,
           .height = kNameHeight + image_.height + kNoteHeight};
  const std::int64_t count = std::ssize(entries);
  const std::int64_t fitting = std::clamp((kSheetWidth - kGap) / (cell_.width + kGap), std::int64_t{1}, count);
  rows_ = divided_up(count, fitting);
  columns_ = divided_up(count, rows_);
  if ((cell_.width + kGap) * columns_ > kMostPixels / ((cell_.height + kGap) * rows_)) {
    throw Error(ErrorSource::usage, fmt::format("--count {}: so many images of {} x {} make too large a picture; give "
                                                "a smaller one",
                                                count, image[1], image[2]));
  }
}

void ContactSheet::draw(Canvas& canvas, const Box& cell, const SheetEntry& entry) const {
  canvas.write(entry.name, {cell.x, cell.y, cell.width, kNameHeight}, {.points = kNamePoints, .colour = kInk});
  Box place{cell.x, cell.y + kNameHeight, image_.width, image_.height};
  if (entry.original) {
    canvas.fill(place, kEmpty);
    canvas.draw(*entry.original, fitted(entry.original->shape, place));
    place.x += image_.width + kInnerGap;
  }
  canvas.draw(entry.image, place);
  canvas.write(entry.note, {cell.x, place.y + place.height, cell.width, kNoteHeight},
               {.points = 1, .colour = kNoteInk});
}

std::vector<std::byte> ContactSheet::png() const {
  Canvas canvas(columns_ * (cell_.width + kGap) + kGap, rows_ * (cell_.height + kGap) + kGap, kGround);
  for (std::int64_t i = 0; i < std::ssize(entries_); ++i) {
    const Box cell{kGap + i % columns_ * (cell_.width + kGap), kGap + i / columns_ * (cell_.height + kGap), cell_.width,
                   cell_.height};
    draw(canvas, cell, entries_[static_cast<std::size_t>(i)]);
  }
  return encode_png(canvas.image());
}

}  // namespace tutti
