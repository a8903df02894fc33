#pragma once
// Decodes JPEG, PNG and TIFF files to planes of bytes, and applies the orientation that JPEG and TIFF files record.
// Color profiles and gamma are ignored and alpha is dropped, as in torchvision. Before anything is allocated, the size
// in the header is compared with kMaxPixels and with the most pixels that a file of its length can contain. Truncated
// and damaged files are refused.

#include "tutti/base/shape.hpp"
#include "tutti/data/dataset.hpp"

#include "image_geometry.hpp"

#include <cstdint>
#include <functional>
#include <source_location>
#include <span>
#include <string_view>
#include <vector>

namespace tutti {

inline constexpr std::int64_t kMaxPixels = std::int64_t{1} << 26;  // of one image, with any number of channels
// A byte of a gzip or PNG file expands to at most this many, by the deflate format.
inline constexpr std::int64_t kMaxDeflateRatio = 1032;

// Whether these are the first bytes of an image file; eight bytes suffice.
bool has_image_signature(std::span<const std::uint8_t> bytes);
bool is_jpeg(std::span<const std::uint8_t> bytes);
bool is_tiff(std::span<const std::uint8_t> bytes);
// Encodes a JPEG file of an image of 1 (gray) or 3 channels, with a quality of 1 to 100 as in libjpeg.
std::vector<std::byte> encode_jpeg(const ImageView& image, int quality);

// Reads the header: 1 (gray) or 3 (color) channels, height and width. This and decode_image throw input errors that
// name the file, the reason and its remedy.
Shape image_shape(const ImageFile& file);

// Fills `pixels` with C, H, W bytes and returns the shape. Gray images are converted to color if `channels` is 3;
// color images are refused if it is 1.
Shape decode_image(const ImageFile& file, std::int64_t channels, std::vector<std::uint8_t>& pixels);

// Decodes a part of an image into `memory`: `region_of` returns it, given the image's shape. All bits are those of
// decode_image unless the region is one of a scaled image, for which decodes_scaled() must be true. Of a JPEG, rows
// below the region are not decoded, so that damage in them is not noticed; but a file that does not end as it must is
// decoded to its end and refused. PNG and TIFF files are decoded whole.
RegionPixels decode_region(const ImageFile& file, std::int64_t channels,
                           const std::function<ImageRegion(const Shape&)>& region_of,
                           std::vector<std::uint8_t>& memory);

// Whether the file is a JPEG file that is stored upright.
bool decodes_scaled(const ImageFile& file);

// The EXIF orientation of a JPEG or TIFF file, 1 (upright) to 8; 1 if it is missing or invalid. Cameras do not rotate
// pixels; they only record the orientation.
int exif_orientation(std::span<const std::uint8_t> file);

// For the decoders: throws an input error that names the file, the reason and its remedy.
[[noreturn]] void refuse(const ImageFile& file, std::string_view reason,
                         std::source_location where = std::source_location::current());
// Refuses an image that is larger than kMaxPixels, or than a file of this length can contain.
void refuse_size(const ImageFile& file, std::int64_t height, std::int64_t width, std::int64_t most_per_byte);

}  // namespace tutti
