#pragma once
// Writes PNG files for users to look at: one small image, or many in a grid.

#include "tutti/data/dataset.hpp"

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

namespace tutti {

// The image as a PNG file. Larger images are averaged until no side is longer than `max_side`. If the channels are
// neither gray nor RGB, only the first is shown.
std::vector<std::byte> small_png(const ImageView& image, std::int64_t max_side);

// Images of 1 or 3 channels, borrowed.
struct SheetEntry {
  ImageView image;                      // all entries have the same size
  std::optional<ImageView> original{};  // shown to the left of it, in a box of the same size; for all entries or none
};

struct ContactSheet {
  std::int64_t columns = 1;
  std::int64_t enlargement = 1;  // small images are shown larger, by a whole number
  std::vector<std::byte> png{};
};

// Throws a usage error if the sheet would be too large.
ContactSheet make_contact_sheet(const std::vector<SheetEntry>& entries);

}  // namespace tutti
