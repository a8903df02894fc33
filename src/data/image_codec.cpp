#include "image_codec.hpp"

#include "tutti/base/error.hpp"
#include "tutti/data/dataset.hpp"

#include "tiff_decoder.hpp"

#include <fmt/format.h>
#include <jerror.h>
#include <jpeglib.h>
#include <png.h>

#include <algorithm>
#include <array>
#include <csetjmp>
#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <utility>

namespace tutti {
namespace {

constexpr std::array<std::uint8_t, 8> kPngSignature{0x89, 'P', 'N', 'G', '\r', '\n', 0x1A, '\n'};
constexpr std::array<std::uint8_t, 3> kJpegSignature{0xFF, 0xD8, 0xFF};
// Of little and big endian files, and of those with offsets of 64 bits.
constexpr std::array<std::array<std::uint8_t, 4>, 4> kTiffSignatures{
    {{'I', 'I', 42, 0}, {'M', 'M', 0, 42}, {'I', 'I', 43, 0}, {'M', 'M', 0, 43}}};
// The format needs at least one bit for a block of 8 x 8 pixels.
constexpr std::int64_t kMaxJpegPixelsPerByte = 512;
constexpr int kMaxJpegScans = 100;
// A pixel has at least one bit.
constexpr std::int64_t kMaxPngPixelsPerByte = 8 * kMaxDeflateRatio;
constexpr png_alloc_size_t kMaxPngChunkBytes = 8 << 20;
constexpr long kMaxJpegMemoryBytes = 6 * kMaxPixels + (64 << 20);

// The orientation in the first directory of a TIFF file, or of EXIF data, which are one without pictures. 0: none.
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
  constexpr std::uint32_t kWithOffsetsOf64Bits = 43;
  if (number(2, 2) == kWithOffsetsOf64Bits) return 0;
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

// Whether the stored rows are the upright image's columns.
bool swaps_axes(int orientation) { return orientation >= 5; }

bool is_from_right(int orientation) { return orientation == 2 || orientation == 3 || orientation >= 7; }
bool is_from_bottom(int orientation) {
  return orientation == 3 || orientation == 4 || orientation == 6 || orientation == 7;
}

// The region of the stored image, of this shape, that is a region of the upright image. Orientations 2, 3, 7 and 8 are
// stored from right to left, 3, 4, 6 and 7 from bottom to top; from 5 on, rows and columns are swapped.
ImageRegion stored_region(ImageRegion upright, int orientation, const Shape& stored) {
  const auto from_end = [](IndexRange range, std::int64_t size) {
    return IndexRange{size - range.end, size - range.begin};
  };
  if (swaps_axes(orientation)) std::swap(upright.rows, upright.columns);
  if (is_from_bottom(orientation)) upright.rows = from_end(upright.rows, stored[1]);
  if (is_from_right(orientation)) upright.columns = from_end(upright.columns, stored[2]);
  return upright;
}

// Pixels of the stored image's region `stored` as pixels of the upright image's `region`.
RegionPixels upright(RegionPixels stored, int orientation, const ImageRegion& region) {
  if (is_from_bottom(orientation)) {
    stored.first += (stored.region.rows.size() - 1) * stored.by_row;
    stored.by_row = -stored.by_row;
  }
  if (is_from_right(orientation)) {
    stored.first += (stored.region.columns.size() - 1) * stored.by_column;
    stored.by_column = -stored.by_column;
  }
  if (swaps_axes(orientation)) std::swap(stored.by_row, stored.by_column);
  stored.region = region;
  return stored;
}

// The longjmp target for errors of the C libraries, and the reason. A jump must not skip destructors, so a step may
// contain only calls of the libraries and trivial objects.
struct ErrorTrap {
  std::jmp_buf target;
  std::array<char, JMSG_LENGTH_MAX> reason{};
};

template <class Step>
void perform(const ImageFile& file, ErrorTrap& trap, const Step& step) {
  if (setjmp(trap.target) != 0) refuse(file, trap.reason.data());
  step();
}

bool is_damage(int warning) {
  return warning == JWRN_JPEG_EOF || warning == JWRN_HIT_MARKER || warning == JWRN_HUFF_BAD_CODE;
}

[[noreturn]] void fail(ErrorTrap& trap, const char* reason) {
  std::strncpy(trap.reason.data(), reason, trap.reason.size() - 1);
  std::longjmp(trap.target, 1);
}

// With the message of libjpeg.
[[noreturn]] void fail_with_message(j_common_ptr info) {
  std::array<char, JMSG_LENGTH_MAX> reason{};
  info->err->format_message(info, reason.data());
  fail(*static_cast<ErrorTrap*>(info->client_data), reason.data());
}

class JpegDecoder {
 public:
  explicit JpegDecoder(const ImageFile& file) : file_(file) {}
  ~JpegDecoder() { jpeg_destroy_decompress(&info_); }
  JpegDecoder(const JpegDecoder&) = delete;
  JpegDecoder& operator=(const JpegDecoder&) = delete;

  void read_header() {
    info_.err = jpeg_std_error(&errors_);
    info_.client_data = &trap_;
    errors_.error_exit = fail_with_message;
    errors_.emit_message = [](j_common_ptr info, int level) {
      if (level < 0 && is_damage(info->err->msg_code)) fail_with_message(info);
    };
    progress_.progress_monitor = [](j_common_ptr info) {
      if (reinterpret_cast<j_decompress_ptr>(info)->input_scan_number <= kMaxJpegScans) return;
      fail(*static_cast<ErrorTrap*>(info->client_data), "it has too many scans");
    };
    perform(file_, trap_, [&] {
      jpeg_create_decompress(&info_);
      info_.mem->max_memory_to_use = kMaxJpegMemoryBytes;
      info_.progress = &progress_;
      jpeg_mem_src(&info_, file_.bytes.data(), file_.bytes.size());
      jpeg_read_header(&info_, TRUE);
    });
    refuse_size(file_, info_.image_height, info_.image_width, kMaxJpegPixelsPerByte);
    if (file_.applies_exif) orientation_ = exif_orientation(file_.bytes);
    if (info_.jpeg_color_space == JCS_UNKNOWN) {
      refuse(file_, fmt::format("a JPEG with {} components in an unknown color space", info_.num_components));
    }
  }

  Shape shape() const {
    return {info_.jpeg_color_space == JCS_GRAYSCALE ? 1 : 3, info_.image_height, info_.image_width};
  }

  int orientation() const { return orientation_; }

  // Channels are interleaved.
  RegionPixels decode(const ImageRegion& region, std::vector<std::uint8_t>& memory) {
    const bool is_cmyk = info_.jpeg_color_space == JCS_CMYK || info_.jpeg_color_space == JCS_YCCK;
    const std::int64_t channels = shape()[0];
    info_.out_color_space = is_cmyk ? JCS_CMYK : channels == 1 ? JCS_GRAYSCALE : JCS_RGB;
    info_.scale_num = static_cast<unsigned>(region.eighths);
    info_.scale_denom = 8;
    perform(file_, trap_, [&] { jpeg_start_decompress(&info_); });
    const ImageRegion decoded =
        decodes_parts() ? with_neighbors(region) : ImageRegion{{0, info_.output_height}, {0, info_.output_width}};
    auto left = static_cast<JDIMENSION>(decoded.columns.begin);
    auto width = static_cast<JDIMENSION>(decoded.columns.size());
    perform(file_, trap_, [&] {
      jpeg_crop_scanline(&info_, &left, &width);  // left goes down to the edge of a block
      if (decoded.rows.begin > 0) jpeg_skip_scanlines(&info_, static_cast<JDIMENSION>(decoded.rows.begin));
    });
    const auto row_bytes = static_cast<std::size_t>(width * channels);
    const auto num_rows = static_cast<std::size_t>(decoded.rows.size());
    const std::size_t needed = row_bytes * (num_rows + 1);  // one for the rows below
    if (memory.size() < needed) memory.resize(needed);
    ink_.resize(is_cmyk ? 4 * std::size_t{width} : 0);
    const auto last_row = static_cast<JDIMENSION>(has_end_marker() ? decoded.rows.end : info_.output_height);
    perform(file_, trap_, [&] {
      while (info_.output_scanline < last_row) {
        const auto row = static_cast<std::size_t>(info_.output_scanline - decoded.rows.begin);
        std::uint8_t* pixels = memory.data() + row_bytes * std::min(row, num_rows);
        std::uint8_t* target = is_cmyk ? ink_.data() : pixels;
        jpeg_read_scanlines(&info_, &target, 1);
        if (is_cmyk) cmyk_to_rgb(ink_, pixels);
      }
      if (last_row == info_.output_height) jpeg_finish_decompress(&info_);
    });
    return {.first = memory.data() + (region.rows.begin - decoded.rows.begin) * static_cast<std::int64_t>(row_bytes) +
                     (region.columns.begin - left) * channels,
            .by_channel = channels == 1 ? 0 : 1,
            .by_row = static_cast<std::ptrdiff_t>(row_bytes),
            .by_column = channels,
            .region = region};
  }

 private:
  // Whether libjpeg decodes parts of such a file to the bits of the whole. Not if a progressive file ends before its
  // coefficients are complete: their blocks are smoothed with blocks on all sides.
  bool decodes_parts() const {
    for (int c = 0; c < info_.num_components; ++c) {
      const jpeg_component_info& component = info_.comp_info[c];
      const bool is_first = c == 0;
      if (component.h_samp_factor > (is_first ? 2 : 1) || component.v_samp_factor > (is_first ? 2 : 1)) return false;
      if (!info_.progressive_mode) continue;
      const auto* bits = info_.coef_bits[c];
      if (std::any_of(bits, bits + DCTSIZE2, [](int missing) { return missing != 0; })) return false;
    }
    return true;
  }

  // Colors between two samples are interpolated, so their neighbors are needed. Rows begin with those of a block.
  ImageRegion with_neighbors(const ImageRegion& region) const {
    constexpr std::int64_t kMargin = 2;
    const std::int64_t block_rows = std::int64_t{info_.min_DCT_scaled_size} * info_.max_v_samp_factor;
    const auto from = [](std::int64_t begin) { return std::max<std::int64_t>(0, begin - kMargin); };
    const auto to = [](std::int64_t end, std::int64_t size) { return std::min(size, end + kMargin); };
    return {{from(region.rows.begin) / block_rows * block_rows, region.rows.end},
            {from(region.columns.begin), to(region.columns.end, info_.output_width)}};
  }

  bool has_end_marker() const {
    const auto& bytes = file_.bytes;
    return bytes.size() >= 2 && bytes[bytes.size() - 2] == 0xFF && bytes.back() == JPEG_EOI;
  }

  // Adobe's programs store inverted CMYK, and nearly all CMYK files are written by them.
  void cmyk_to_rgb(std::span<const std::uint8_t> ink, std::uint8_t* row) const {
    const int flip = info_.saw_Adobe_marker != 0 ? 0 : 255;
    for (std::size_t i = 0; i < ink.size(); i += 4) {
      const int black = ink[i + 3] ^ flip;
      for (std::size_t c = 0; c < 3; ++c) *row++ = static_cast<std::uint8_t>((ink[i + c] ^ flip) * black / 255);
    }
  }

  const ImageFile& file_;
  ErrorTrap trap_;
  std::vector<std::uint8_t> ink_;  // a row of CMYK
  jpeg_error_mgr errors_{};
  jpeg_progress_mgr progress_{};
  int orientation_ = 1;
  jpeg_decompress_struct info_{};
};

class PngDecoder {
 public:
  explicit PngDecoder(const ImageFile& file) : file_(file), rest_(file.bytes) {}
  ~PngDecoder() { png_destroy_read_struct(&png_, &info_, nullptr); }
  PngDecoder(const PngDecoder&) = delete;
  PngDecoder& operator=(const PngDecoder&) = delete;

  void read_header() {
    const auto on_error = [](png_structp png, png_const_charp reason) {
      fail(*static_cast<ErrorTrap*>(png_get_error_ptr(png)), reason);
    };
    png_ = png_create_read_struct(PNG_LIBPNG_VER_STRING, &trap_, on_error, [](png_structp, png_const_charp) {});
    if (png_ == nullptr) refuse(file_, "libpng is of another version than the one compiled with, or out of memory");
    perform(file_, trap_, [&] {
      info_ = png_create_info_struct(png_);
      if (info_ == nullptr) png_error(png_, "out of memory");
      png_set_user_limits(png_, 1 << 20, 1 << 20);
      png_set_chunk_malloc_max(png_, kMaxPngChunkBytes);
      // Skips all chunks but those of the pixels, their palette and their transparency. libpng inflates and keeps
      // others, such as texts and profiles, of which a small file can hold gigabytes.
      png_set_keep_unknown_chunks(png_, PNG_HANDLE_CHUNK_NEVER, nullptr, -1);
      png_set_read_fn(png_, this, read);
      png_read_info(png_, info_);
    });
    refuse_size(file_, png_get_image_height(png_, info_), png_get_image_width(png_, info_), kMaxPngPixelsPerByte);
  }

  Shape shape() const {
    const bool is_color = (png_get_color_type(png_, info_) & PNG_COLOR_MASK_COLOR) != 0;
    return {is_color ? 3 : 1, png_get_image_height(png_, info_), png_get_image_width(png_, info_)};
  }

  int orientation() const { return 1; }

  // Channels are interleaved.
  RegionPixels decode(const ImageRegion& region, std::vector<std::uint8_t>& memory) {
    const Shape image = shape();
    const auto row_bytes = static_cast<std::size_t>(image[0] * image[2]);
    perform(file_, trap_, [&] {
      png_set_expand(png_);
      png_set_scale_16(png_);
      png_set_strip_alpha(png_);
      png_set_interlace_handling(png_);
      png_read_update_info(png_, info_);
      if (png_get_rowbytes(png_, info_) != row_bytes) png_error(png_, "its rows have an unexpected length");
    });
    const auto height = static_cast<std::size_t>(image[1]);
    if (memory.size() < row_bytes * height) memory.resize(row_bytes * height);
    std::vector<png_bytep> rows;
    for (std::size_t row = 0; row < height; ++row) rows.push_back(memory.data() + row * row_bytes);
    perform(file_, trap_, [&] {
      png_read_image(png_, rows.data());
      png_read_end(png_, nullptr);
    });
    return {.first = rows[static_cast<std::size_t>(region.rows.begin)] + region.columns.begin * image[0],
            .by_channel = image[0] == 1 ? 0 : 1,
            .by_row = static_cast<std::ptrdiff_t>(row_bytes),
            .by_column = image[0],
            .region = region};
  }

 private:
  static void read(png_structp png, png_bytep target, std::size_t bytes) {
    auto& rest = static_cast<PngDecoder*>(png_get_io_ptr(png))->rest_;
    if (bytes > rest.size()) png_error(png, "the file ends too early");
    std::copy_n(rest.begin(), bytes, target);
    rest = rest.subspan(bytes);
  }

  const ImageFile& file_;
  std::span<const std::uint8_t> rest_;
  ErrorTrap trap_;
  png_structp png_ = nullptr;
  png_infop info_ = nullptr;
};

template <class Signature>
bool begins_with(std::span<const std::uint8_t> bytes, const Signature& signature) {
  return bytes.size() >= signature.size() && std::equal(signature.begin(), signature.end(), bytes.begin());
}

bool is_png(std::span<const std::uint8_t> bytes) { return begins_with(bytes, kPngSignature); }

template <class Action>
auto with_decoder(const ImageFile& file, const Action& action) {
  const auto act_with = [&](auto&& decoder) {
    decoder.read_header();
    return action(decoder);
  };
  if (is_jpeg(file.bytes)) return act_with(JpegDecoder(file));
  if (is_png(file.bytes)) return act_with(PngDecoder(file));
  if (is_tiff(file.bytes)) return act_with(TiffDecoder(file));
  refuse(file, "it is neither a JPEG nor a PNG nor a TIFF file");
}

template <class Decoder>
Shape upright_shape(const Decoder& decoder) {
  const Shape stored = decoder.shape();
  return swaps_axes(decoder.orientation()) ? Shape{stored[0], stored[2], stored[1]} : stored;
}

std::vector<std::uint8_t> interleave(const ImageView& image) {
  const auto channels = static_cast<std::size_t>(image.shape[0]);
  const auto plane = static_cast<std::size_t>(image.shape[1] * image.shape[2]);
  std::vector<std::uint8_t> interleaved(channels * plane);
  for (std::size_t c = 0; c < channels; ++c) {
    for (std::size_t i = 0; i < plane; ++i) interleaved[i * channels + c] = image.pixels[c * plane + i];
  }
  return interleaved;
}

int valid_orientation(int found) { return found >= 1 && found <= 8 ? found : 1; }

}  // namespace

void refuse(const ImageFile& file, std::string_view reason, std::source_location where) {
  throw Error(ErrorSource::input,
              fmt::format("the image '{}' cannot be decoded: {}{}{}", file.name, reason,
                          file.remedy.empty() ? "" : "; ", file.remedy),
              where);
}

void refuse_size(const ImageFile& file, std::int64_t height, std::int64_t width, std::int64_t most_per_byte) {
  const std::int64_t most = std::min(kMaxPixels, most_per_byte * static_cast<std::int64_t>(file.bytes.size()));
  if (height > 0 && width > 0 && height <= most / width) return;
  refuse(file, fmt::format("its header announces {} x {} pixels, but {} {}", height, width,
                           most == kMaxPixels ? "images can have at most" : "the file can contain at most", most));
}

// Segments precede the compressed data: FF (once or more), a type, and a length that includes its own two bytes.
int exif_orientation(std::span<const std::uint8_t> file) {
  constexpr std::array<std::uint8_t, 6> kExif{'E', 'x', 'i', 'f', 0, 0};
  constexpr std::uint8_t kApplication1 = 0xE1;
  constexpr std::uint8_t kStartOfScan = 0xDA;
  if (is_tiff(file)) return valid_orientation(orientation_in(file));
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
      return valid_orientation(orientation_in(segment.subspan(kExif.size())));
    }
    at += 2 + length;
  }
  return 1;
}

bool decodes_scaled(const ImageFile& file) {
  return is_jpeg(file.bytes) && (!file.applies_exif || exif_orientation(file.bytes) == 1);
}

bool has_image_signature(std::span<const std::uint8_t> bytes) {
  return is_jpeg(bytes) || is_png(bytes) || is_tiff(bytes);
}

bool is_jpeg(std::span<const std::uint8_t> bytes) { return begins_with(bytes, kJpegSignature); }

bool is_tiff(std::span<const std::uint8_t> bytes) {
  return std::ranges::any_of(kTiffSignatures, [&](const auto& signature) { return begins_with(bytes, signature); });
}

std::vector<std::byte> encode_png(const ImageView& image) {
  const Shape& shape = image.shape;
  if (shape.ndim() != 3 || (shape[0] != 1 && shape[0] != 3) || shape.elements() == 0) {
    throw Error(ErrorSource::internal, fmt::format("an image of {} cannot be a PNG file", shape.text()));
  }
  const std::vector<std::uint8_t> interleaved = interleave(image);
  png_image header{};
  header.version = PNG_IMAGE_VERSION;
  header.width = static_cast<png_uint_32>(shape[2]);
  header.height = static_cast<png_uint_32>(shape[1]);
  header.format = shape[0] == 1 ? PNG_FORMAT_GRAY : PNG_FORMAT_RGB;
  png_alloc_size_t size = PNG_IMAGE_PNG_SIZE_MAX(header);
  std::vector<std::byte> bytes(size);
  if (png_image_write_to_memory(&header, bytes.data(), &size, 0, interleaved.data(), 0, nullptr) == 0) {
    throw Error(ErrorSource::internal,
                fmt::format("an image of {} cannot become a PNG: {}", shape.text(), header.message));
  }
  bytes.resize(size);
  return bytes;
}

std::vector<std::byte> encode_jpeg(const ImageView& image, int quality) {
  const std::vector<std::uint8_t> interleaved = interleave(image);
  const auto row_bytes = static_cast<std::size_t>(image.shape[0] * image.shape[2]);
  jpeg_compress_struct info{};
  jpeg_error_mgr errors{};
  ErrorTrap trap;
  unsigned char* memory = nullptr;
  unsigned long size = 0;
  info.err = jpeg_std_error(&errors);
  info.client_data = &trap;
  errors.error_exit = fail_with_message;
  const std::shared_ptr<void> release(nullptr, [&](void*) {
    jpeg_destroy_compress(&info);
    std::free(memory);
  });
  perform(ImageFile{{}, "to be encoded"}, trap, [&] {
    jpeg_create_compress(&info);
    jpeg_mem_dest(&info, &memory, &size);
    info.image_width = static_cast<JDIMENSION>(image.shape[2]);
    info.image_height = static_cast<JDIMENSION>(image.shape[1]);
    info.input_components = static_cast<int>(image.shape[0]);
    info.in_color_space = image.shape[0] == 1 ? JCS_GRAYSCALE : JCS_RGB;
    jpeg_set_defaults(&info);
    jpeg_set_quality(&info, quality, TRUE);
    jpeg_start_compress(&info, TRUE);
    while (info.next_scanline < info.image_height) {
      auto* row = const_cast<std::uint8_t*>(interleaved.data()) + row_bytes * info.next_scanline;  // NOLINT: only read
      jpeg_write_scanlines(&info, &row, 1);
    }
    jpeg_finish_compress(&info);
  });
  const auto* const bytes = reinterpret_cast<const std::byte*>(memory);
  return {bytes, bytes + size};
}

Shape image_shape(const ImageFile& file) {
  return with_decoder(file, [](auto& decoder) { return upright_shape(decoder); });
}

RegionPixels decode_region(const ImageFile& file, std::int64_t channels,
                           const std::function<ImageRegion(const Shape&)>& region_of,
                           std::vector<std::uint8_t>& memory) {
  return with_decoder(file, [&](auto& decoder) {
    const Shape found = upright_shape(decoder);
    if (found[0] > channels) refuse(file, "it is a color image, but the others of its set are gray");
    const ImageRegion region = region_of({channels, found[1], found[2]});
    const ImageRegion stored = stored_region(region, decoder.orientation(), decoder.shape());
    return upright(decoder.decode(stored, memory), decoder.orientation(), region);
  });
}

Shape decode_image(const ImageFile& file, std::int64_t channels, std::vector<std::uint8_t>& pixels) {
  Shape image;
  std::vector<std::uint8_t> memory;
  const auto whole = [&](const Shape& found) {
    image = found;
    return ImageRegion{{0, found[1]}, {0, found[2]}};
  };
  const RegionPixels decoded = decode_region(file, channels, whole, memory);
  pixels.resize(static_cast<std::size_t>(image.elements()));
  std::uint8_t* target = pixels.data();
  for (std::int64_t c = 0; c < channels; ++c) {
    for (std::int64_t row = 0; row < image[1]; ++row) {
      const std::uint8_t* source = decoded.first + c * decoded.by_channel + row * decoded.by_row;
      for (std::int64_t column = 0; column < image[2]; ++column) *target++ = source[column * decoded.by_column];
    }
  }
  return image;
}

}  // namespace tutti
