#pragma once
// JPEG and PNG files as planes of bytes, JPEGs upright as their EXIF orientation says. Colour profiles and gamma are
// left aside and alpha is dropped, as torchvision does it. Nothing is allocated before the size in the header has been
// compared with kMostPixels and with what a file of its size can hold; a file that ends early or whose data are damaged
// is refused.

#include "tutti/base/shape.hpp"

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace tutti {

inline constexpr std::int64_t kMostPixels = std::int64_t{1} << 26;  // of one image, whatever its channels

// A whole file in memory, borrowed, and the name that errors give it.
struct ImageFile {
  std::span<const std::uint8_t> bytes;
  std::string name;
  bool upright = true;  // false: the pixels as they are stored, whatever their EXIF orientation says
};

// By its first bytes, of which eight tell.
bool begins_as_image(std::span<const std::uint8_t> bytes);

// What the header says: 1 (gray) or 3 (colour) channels, height and width. Throws an input error that names the file
// and the reason, as decode_image does.
Shape image_shape(const ImageFile& file);

// Fills `pixels` with C, H, W bytes and returns the shape. Gray becomes colour where 3 channels are asked for; colour
// is refused where 1 is.
Shape decode_image(const ImageFile& file, std::int64_t channels, std::vector<std::uint8_t>& pixels);

// How the pixels of a JPEG file are stored: 1 (upright) to 8, from its EXIF data. Cameras do not turn pixels; they note
// how they were held. 1 where the data say nothing or make no sense.
int exif_orientation(std::span<const std::uint8_t> file);

}  // namespace tutti
