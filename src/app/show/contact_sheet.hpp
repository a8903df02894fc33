#pragma once
// Images in a grid, each under the name of its class: for people to look at.

#include "canvas.hpp"

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

namespace tutti {

// Images of 1 or 3 channels, borrowed.
struct SheetEntry {
  ImageView image;                      // of one size for all entries
  std::optional<ImageView> original{};  // shown to the left of it, in a box of the same size; for all entries or none
  std::string name;                     // above
  std::string note;                     // below, small
};

// Small images are shown larger, by a whole number. Throws a usage error where the sheet would be too large.
class ContactSheet {
 public:
  explicit ContactSheet(const std::vector<SheetEntry>& entries);

  std::int64_t enlargement() const { return scale_; }
  // The sheet as a PNG file.
  std::vector<std::byte> png() const;

 private:
  void draw(Canvas& canvas, const Box& cell, const SheetEntry& entry) const;

  const std::vector<SheetEntry>& entries_;
  std::int64_t scale_ = 1;
  Box image_;  // width and height of every image on the sheet
  Box cell_;   // and of what belongs to an entry
  std::int64_t columns_ = 1;
  std::int64_t rows_ = 1;
};

}  // namespace tutti
