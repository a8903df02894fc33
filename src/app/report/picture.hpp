#pragma once
// Images as a page holds them: small enough, and in the page itself.

#include "tutti/data/dataset.hpp"

#include <cstddef>
#include <span>
#include <string>
#include <vector>

namespace tutti {

// The image as a PNG file, larger ones as means over squares of their pixels, so that no side is longer than `most`. Of
// other channels than gray's or colour's, the first alone.
std::vector<std::byte> thumbnail(const ImageView& image, std::int64_t most);

// "data:image/png;base64,..."
std::string data_address(std::span<const std::byte> png);

}  // namespace tutti
