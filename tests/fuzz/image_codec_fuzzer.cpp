// JPEG, PNG and TIFF files; a PNG's chunks also with the checksums that they have.

#include "fuzz/parsed_input.hpp"
#include "image_codec.hpp"

#include <zlib.h>

using namespace tutti;

namespace {

void mend_checksums(std::vector<std::uint8_t>& png) {
  for (std::size_t at = 8; at + 12 <= png.size();) {
    std::size_t length = 0;
    for (std::size_t i = 0; i < 4; ++i) length = length << 8 | png[at + i];
    if (length > png.size() - at - 12) return;
    const auto sum = crc32(0, png.data() + at + 4, static_cast<uInt>(length + 4));
    for (std::size_t i = 0; i < 4; ++i) png[at + 8 + length + i] = static_cast<std::uint8_t>(sum >> (24 - 8 * i));
    at += length + 12;
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  std::vector<std::uint8_t> file(data, data + size);
  std::vector<std::uint8_t> pixels;
  if (!file.empty() && file.front() == 0x89) mend_checksums(file);
  fuzz::takes({ErrorSource::input}, [&] {
    const Shape image = decode_image({file, "a.jpg"}, 3, pixels);
    if (image_shape({file, "a.jpg"}).without_first() != image.without_first()) fuzz::report("of two shapes");
    // The region depends on the file. Its first pixel has the bits of the whole image.
    std::vector<std::uint8_t> memory;
    const std::int64_t row = static_cast<std::int64_t>(file[size / 2]) % image[1];
    const std::int64_t column = static_cast<std::int64_t>(file[size / 3]) % image[2];
    const auto region_of = [&](const Shape&) {
      return ImageRegion{{row, row + (image[1] - row + 1) / 2}, {column, column + (image[2] - column + 1) / 2}};
    };
    const RegionPixels region = decode_region({file, "a.jpg"}, 3, region_of, memory);
    if (*region.first != pixels[static_cast<std::size_t>(row * image[2] + column)]) fuzz::report("of two pixels");
    const Shape stored = decode_image({file, "a.jpg", false}, 3, pixels);
    if (stored.elements() != image.elements()) fuzz::report("pixels are lost in turning");
  });
  return 0;
}
