#pragma once
// Errors of images that cannot be decoded.

#include "tutti/data/dataset.hpp"

#include <cstdint>
#include <source_location>
#include <string_view>

namespace tutti {

// Throws an input error that names the file, the reason and its remedy.
[[noreturn]] void refuse(const ImageFile& file, std::string_view reason,
                         std::source_location where = std::source_location::current());

// Refuses an image that is larger than kMaxPixels, or than a file of this length can contain.
void refuse_size(const ImageFile& file, std::int64_t height, std::int64_t width, std::int64_t most_per_byte);

}  // namespace tutti
