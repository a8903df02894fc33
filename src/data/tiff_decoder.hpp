#pragma once
// Decodes TIFF files for image_codec: the first picture of a file, with up to 8 bits a sample, or with 16, which are
// rounded to 8 as those of PNG files are.

#include "tutti/base/shape.hpp"
#include "tutti/data/dataset.hpp"

#include "image_geometry.hpp"

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

using TIFF = struct tiff;

namespace tutti {

// A file in memory, and the first error that the library reports about it.
struct TiffSource {
  std::span<const std::uint8_t> bytes;
  std::size_t at = 0;
  std::array<char, 200> error{};
};

class TiffDecoder {
 public:
  explicit TiffDecoder(const ImageFile& file) : file_(file), source_{.bytes = file.bytes} {}
  ~TiffDecoder();
  TiffDecoder(const TiffDecoder&) = delete;
  TiffDecoder& operator=(const TiffDecoder&) = delete;

  void read_header();
  const Shape& shape() const { return shape_; }
  int orientation() const { return orientation_; }
  // Channels are interleaved.
  RegionPixels decode(const ImageRegion& region, std::vector<std::uint8_t>& memory);

 private:
  template <class Value>
  Value field(std::uint32_t tag) const;
  void check_layout() const;
  void check_blocks() const;
  void decode_gray_16(std::uint8_t* pixels);
  [[noreturn]] void refuse_damaged() const;

  const ImageFile& file_;
  TiffSource source_;
  TIFF* tiff_ = nullptr;
  Shape shape_;
  int orientation_ = 1;
};

}  // namespace tutti
