#pragma once
// An image as the bytes of a PNG file, for files that people look at. Nothing is written here.

#include "tutti/data/dataset.hpp"

#include <cstddef>
#include <vector>

namespace tutti {

// Of 1 channel (gray) or 3 (colour); decoded again, the pixels are the same. Throws an internal error for any other
// shape.
std::vector<std::byte> encode_png(const ImageView& image);

}  // namespace tutti
