#pragma once
// An image as the bytes of a PNG file, for people to look at.

#include "tutti/data/dataset.hpp"

#include <cstddef>
#include <vector>

namespace tutti {

// Of 1 channel (gray) or 3 (red, green, blue), without loss.
std::vector<std::byte> encode_png(const ImageView& image);

}  // namespace tutti
