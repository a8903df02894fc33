#include "image_codec.hpp"

#include <algorithm>
#include <array>
#include <utility>

namespace tutti {
namespace {

// Of EXIF data, which are a TIFF file without pictures: its first directory has the orientation. 0: none.
int orientation_in(std::span<const std::uint8_t> tiff) {
  constexpr std::uint32_t kOrientationTag = 0x0112;
  constexpr std::uint32_t kShort = 3;
  constexpr std::size_t kEntryBytes = 12;
  if (tiff.size() < 2 || tiff[0] != tiff[1] || (tiff[0] != 'I' && tiff[0] != 'M')) return 0;
  const bool is_little = tiff[0] == 'I';
  const auto number = [&](std::size_t at, std::size_t bytes) -> std::uint32_t {
    if (at > tiff.size() || tiff.size() - at < bytes) return 0;
    std::uint32_t value = 0;
    for (std::size_t i = 0; i < bytes; ++i) value = value << 8U | tiff[at + (is_little ? bytes - 1 - i : i)];
    return value;
  };
  const std::size_t directory = number(4, 4);
  const std::size_t entries = number(directory, 2);
  for (std::size_t i = 0; i < entries; ++i) {
    const std::size_t entry = directory + 2 + i * kEntryBytes;
    if (entry + kEntryBytes > tiff.size()) return 0;
    if (number(entry, 2) != kOrientationTag) continue;
    return number(entry + 2, 2) == kShort ? static_cast<int>(number(entry + 8, 2)) : 0;
  }
  return 0;
}

}  // namespace

// Before the compressed data come segments: FF, perhaps more than once, a kind, and a length that counts itself.
int exif_orientation(std::span<const std::uint8_t> file) {
  constexpr std::array<std::uint8_t, 6> kExif{'E', 'x', 'i', 'f', 0, 0};
  constexpr std::uint8_t kApplication1 = 0xE1;
  constexpr std::uint8_t kStartOfScan = 0xDA;
  std::size_t at = 2;
  while (at + 4 <= file.size() && file[at] == 0xFF && file[at + 1] != kStartOfScan) {
    if (file[at + 1] == 0xFF) {
      ++at;
      continue;
    }
    const std::size_t length = file[at + 2] * std::size_t{256} + file[at + 3];
    if (length < 2 || length > file.size() - at - 2) return 1;
    const auto segment = file.subspan(at + 4, length - 2);
    const bool has_exif = segment.size() >= kExif.size() && std::equal(kExif.begin(), kExif.end(), segment.begin());
    if (file[at + 1] == kApplication1 && has_exif) {
      const int found = orientation_in(segment.subspan(kExif.size()));
      return found >= 1 && found <= 8 ? found : 1;
    }
    at += 2 + length;
  }
  return 1;
}

// 2, 3, 7 and 8 are stored from right to left, 3, 4, 6 and 7 from bottom to top; from 5 on, rows are columns.
StoredOrder stored_order(int orientation, std::ptrdiff_t height, std::ptrdiff_t width) {
  const bool from_right = orientation == 2 || orientation == 3 || orientation >= 7;
  const bool from_bottom = orientation == 3 || orientation == 4 || orientation == 6 || orientation == 7;
  StoredOrder order{.first = (from_bottom ? (height - 1) * width : 0) + (from_right ? width - 1 : 0),
                    .by_row = from_bottom ? -width : width,
                    .by_column = from_right ? -1 : 1};
  if (lies_on_its_side(orientation)) std::swap(order.by_row, order.by_column);
  return order;
}

}  // namespace tutti
