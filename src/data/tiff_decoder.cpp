#include "tiff_decoder.hpp"

#include "image_codec.hpp"

#include <fmt/format.h>
#include <tiffio.h>

#include <algorithm>
#include <cstdarg>
#include <cstdio>

namespace tutti {
namespace {

// A pixel has at least one bit, and a code of LZW, with 12 bits, stands for less than 3,840 bytes.
constexpr std::int64_t kMaxPixelsPerByte = 8 * 2560;
// The others are rare, or have been the way of attacks on the library.
constexpr std::ptrdiff_t kPixelBytes = 4;  // red, green, blue and alpha, or gray and three others
constexpr std::array<std::uint16_t, 6> kCompressions{COMPRESSION_NONE,    COMPRESSION_LZW,
                                                     COMPRESSION_JPEG,    COMPRESSION_ADOBE_DEFLATE,
                                                     COMPRESSION_DEFLATE, COMPRESSION_PACKBITS};

TiffSource& source_of(thandle_t handle) { return *static_cast<TiffSource*>(handle); }

tmsize_t read(thandle_t handle, void* target, tmsize_t size) {
  TiffSource& source = source_of(handle);
  const auto rest = source.bytes.subspan(std::min(source.at, source.bytes.size()));
  const std::size_t count = std::min(static_cast<std::size_t>(size), rest.size());
  std::copy_n(rest.begin(), count, static_cast<std::uint8_t*>(target));
  source.at += count;
  return static_cast<tmsize_t>(count);
}

toff_t seek(thandle_t handle, toff_t offset, int from) {
  TiffSource& source = source_of(handle);
  source.at = offset + (from == SEEK_CUR ? source.at : from == SEEK_END ? source.bytes.size() : 0);
  return source.at;
}

// Without this, Debian's library misreads tiles that are not compressed. It does not write to the memory.
int map(thandle_t handle, void** memory, toff_t* size) {
  const auto bytes = source_of(handle).bytes;
  *memory = const_cast<std::uint8_t*>(bytes.data());
  *size = bytes.size();
  return 1;
}

// The library has one handler for the whole process and passes it the handle of the file.
void keep_first_error(thandle_t handle, const char*, const char* format, va_list values) {
  if (handle == nullptr || source_of(handle).error[0] != '\0') return;
  std::vsnprintf(source_of(handle).error.data(), source_of(handle).error.size(), format, values);
}

TIFF* open(TiffSource& source) {
  [[maybe_unused]] static const bool prints_nothing = [] {
    TIFFSetErrorHandler(nullptr);
    TIFFSetWarningHandler(nullptr);
    TIFFSetErrorHandlerExt(keep_first_error);
    return true;
  }();
  return TIFFClientOpen(
      "image", "r", &source, read, [](thandle_t, void*, tmsize_t) { return tmsize_t{0}; }, seek,
      [](thandle_t) { return 0; }, [](thandle_t handle) { return toff_t{source_of(handle).bytes.size()}; }, map,
      [](thandle_t, void*, toff_t) {});
}

}  // namespace

TiffDecoder::~TiffDecoder() {
  if (tiff_ != nullptr) TIFFClose(tiff_);
}

template <class Value>
Value TiffDecoder::field(std::uint32_t tag) const {
  Value value{};
  if (TIFFGetFieldDefaulted(tiff_, tag, &value) != 1) refuse(file_, fmt::format("its header lacks the field {}", tag));
  return value;
}

void TiffDecoder::refuse_damaged() const {
  refuse(file_, source_.error[0] != '\0' ? source_.error.data() : "the file ends too early");
}

void TiffDecoder::read_header() {
  tiff_ = open(source_);
  if (tiff_ == nullptr) refuse_damaged();
  const auto photometric = field<std::uint16_t>(TIFFTAG_PHOTOMETRIC);
  const bool is_gray = photometric == PHOTOMETRIC_MINISBLACK || photometric == PHOTOMETRIC_MINISWHITE;
  shape_ = Shape{is_gray ? 1 : 3, field<std::uint32_t>(TIFFTAG_IMAGELENGTH), field<std::uint32_t>(TIFFTAG_IMAGEWIDTH)};
  refuse_size(file_, shape_[1], shape_[2], kMaxPixelsPerByte);
  check_layout();
  check_blocks();
  if (file_.applies_exif) orientation_ = exif_orientation(file_.bytes);
}

void TiffDecoder::check_layout() const {
  const auto compression = field<std::uint16_t>(TIFFTAG_COMPRESSION);
  if (std::ranges::find(kCompressions, compression) == kCompressions.end()) {
    refuse(file_,
           fmt::format("a TIFF file with the compression {}: use none, LZW, Deflate, PackBits or JPEG", compression));
  }
  if (const auto format = field<std::uint16_t>(TIFFTAG_SAMPLEFORMAT); format != SAMPLEFORMAT_UINT) {
    refuse(file_, "a TIFF file with numbers that are signed or of floating point: convert it to 8 bits a sample");
  }
  constexpr int kMostSamples = 8;  // a pixel
  std::array<char, 1024> reason{};
  if (field<std::uint16_t>(TIFFTAG_SAMPLESPERPIXEL) > kMostSamples || TIFFRGBAImageOK(tiff_, reason.data()) == 0) {
    refuse(file_, fmt::format("a TIFF file with other pixels than gray or color ones of 1 to 16 bits a sample{}{}",
                              reason[0] != '\0' ? ": " : "", reason.data()));
  }
}

// The blocks that are compressed for themselves must lie in the file, and must not be larger than it can hold.
void TiffDecoder::check_blocks() const {
  const bool is_tiled = TIFFIsTiled(tiff_) != 0;
  if (is_tiled) {
    refuse_size(file_, field<std::uint32_t>(TIFFTAG_TILELENGTH), field<std::uint32_t>(TIFFTAG_TILEWIDTH),
                kMaxPixelsPerByte);
  }
  const std::uint32_t blocks = is_tiled ? TIFFNumberOfTiles(tiff_) : TIFFNumberOfStrips(tiff_);
  const std::uint64_t size = file_.bytes.size();
  if (blocks == 0 || blocks > size) refuse_damaged();
  for (std::uint32_t i = 0; i < blocks; ++i) {
    const std::uint64_t begin = TIFFGetStrileOffset(tiff_, i);
    const std::uint64_t length = TIFFGetStrileByteCount(tiff_, i);
    if (length == 0 || begin > size || length > size - begin) refuse_damaged();
  }
}

// To the first byte of each pixel. The library would take the upper bytes, though it rounds samples of colors.
void TiffDecoder::decode_gray_16(std::uint8_t* pixels) {
  const bool is_tiled = TIFFIsTiled(tiff_) != 0;
  const bool is_negative = field<std::uint16_t>(TIFFTAG_PHOTOMETRIC) == PHOTOMETRIC_MINISWHITE;
  const std::int64_t width = is_tiled ? field<std::uint32_t>(TIFFTAG_TILEWIDTH) : shape_[2];
  const std::int64_t height = is_tiled ? field<std::uint32_t>(TIFFTAG_TILELENGTH) : 1;
  const auto bytes = static_cast<std::size_t>(is_tiled ? TIFFTileSize(tiff_) : TIFFScanlineSize(tiff_));
  std::vector<std::uint16_t> block((bytes + 1) / sizeof(std::uint16_t));
  for (std::int64_t top = 0; top < shape_[1]; top += height) {
    for (std::int64_t left = 0; left < shape_[2]; left += width) {
      const auto x = static_cast<std::uint32_t>(left);
      const auto y = static_cast<std::uint32_t>(top);
      if (is_tiled ? TIFFReadTile(tiff_, block.data(), x, y, 0, 0) < 0
                   : TIFFReadScanline(tiff_, block.data(), y, 0) != 1) {
        refuse_damaged();
      }
      for (std::int64_t row = 0; row < std::min(height, shape_[1] - top); ++row) {
        for (std::int64_t column = 0; column < std::min(width, shape_[2] - left); ++column) {
          const int value = (block[static_cast<std::size_t>(row * width + column)] + 128) / 257;
          pixels[kPixelBytes * ((top + row) * shape_[2] + left + column)] =
              static_cast<std::uint8_t>(is_negative ? 255 - value : value);
        }
      }
    }
  }
}

RegionPixels TiffDecoder::decode(const ImageRegion& region, std::vector<std::uint8_t>& memory) {
  const std::int64_t width = shape_[2];
  const auto needed = static_cast<std::size_t>(kPixelBytes * shape_[1] * width);
  if (memory.size() < needed) memory.resize(needed);
  const RegionPixels pixels{.first = memory.data() + kPixelBytes * (region.rows.begin * width + region.columns.begin),
                            .by_channel = shape_[0] == 1 ? 0 : 1,
                            .by_row = kPixelBytes * width,
                            .by_column = kPixelBytes,
                            .region = region};
  if (shape_[0] == 1 && field<std::uint16_t>(TIFFTAG_BITSPERSAMPLE) == 16 &&
      field<std::uint16_t>(TIFFTAG_SAMPLESPERPIXEL) == 1) {
    decode_gray_16(memory.data());
    return pixels;
  }
  // Rows and columns as they are stored, and colors that are not multiplied with their alpha.
  std::uint16_t others = 0;
  std::uint16_t* kinds = nullptr;
  TIFFGetFieldDefaulted(tiff_, TIFFTAG_EXTRASAMPLES, &others, &kinds);
  const std::vector<std::uint16_t> already_multiplied(others, EXTRASAMPLE_ASSOCALPHA);
  if (TIFFSetField(tiff_, TIFFTAG_ORIENTATION, ORIENTATION_TOPLEFT) != 1 ||
      (others > 0 && TIFFSetField(tiff_, TIFFTAG_EXTRASAMPLES, others, already_multiplied.data()) != 1) ||
      TIFFReadRGBAImageOriented(tiff_, static_cast<std::uint32_t>(width), static_cast<std::uint32_t>(shape_[1]),
                                reinterpret_cast<std::uint32_t*>(memory.data()), ORIENTATION_TOPLEFT,
                                /*stop at an error*/ 1) != 1) {
    refuse_damaged();
  }
  return pixels;
}

}  // namespace tutti
