#pragma once
// How the pixels of a JPEG file are stored, as its EXIF data say: cameras turn no pixels, they note how they were held.

#include <cstddef>
#include <cstdint>
#include <span>

namespace tutti {

// The file's orientation, 1 (upright) to 8; 1 where its EXIF data do not say, or make no sense.
int exif_orientation(std::span<const std::uint8_t> file);

// Whether the stored rows are the image's columns.
inline bool lies_on_its_side(int orientation) { return orientation >= 5; }

// In which of the stored pixels the upright image's pixel lies: first + row * by_row + column * by_column.
struct StoredOrder {
  std::ptrdiff_t first = 0;
  std::ptrdiff_t by_row = 0;
  std::ptrdiff_t by_column = 1;
};
// Height and width are those of the stored image.
StoredOrder stored_order(int orientation, std::ptrdiff_t height, std::ptrdiff_t width);

}  // namespace tutti
