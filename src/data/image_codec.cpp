#include "image_codec.hpp"

#include "tutti/base/error.hpp"
#include "tutti/data/dataset.hpp"

#include "deflate.hpp"

#include <fmt/format.h>
#include <jerror.h>
#include <jpeglib.h>
#include <png.h>

#include <algorithm>
#include <array>
#include <csetjmp>
#include <cstddef>
#include <cstring>
#include <source_location>
#include <string_view>
#include <utility>

namespace tutti {
namespace {

constexpr std::array<std::uint8_t, 8> kPngSignature{0x89, 'P', 'N', 'G', '\r', '\n', 0x1A, '\n'};
constexpr std::array<std::uint8_t, 3> kJpegSignature{0xFF, 0xD8, 0xFF};
// The format needs at least one bit for a block of 8 x 8 pixels.
constexpr std::int64_t kMaxJpegPixelsPerByte = 512;
constexpr int kMaxJpegScans = 100;
// A pixel has at least one bit.
constexpr std::int64_t kMaxPngPixelsPerByte = 8 * kMaxDeflateRatio;
constexpr png_alloc_size_t kMaxPngChunkBytes = 8 << 20;
constexpr long kMaxJpegMemoryBytes = 6 * kMaxPixels + (64 << 20);

// The orientation in EXIF data, which are a TIFF file without pictures; its first directory has it. 0: none.
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

// Whether the stored rows are the upright image's columns.
bool swaps_axes(int orientation) { return orientation >= 5; }

// The index of the stored pixel for a pixel of the upright image: first + row * by_row + column * by_column.
struct StoredOrder {
  std::ptrdiff_t first = 0;
  std::ptrdiff_t by_row = 0;
  std::ptrdiff_t by_column = 1;
};

// `height` and `width` are those of the stored image. Orientations 2, 3, 7 and 8 are stored from right to left, 3, 4, 6
// and 7 from bottom to top; from 5 on, rows and columns are swapped.
StoredOrder stored_order(int orientation, std::ptrdiff_t height, std::ptrdiff_t width) {
  const bool from_right = orientation == 2 || orientation == 3 || orientation >= 7;
  const bool from_bottom = orientation == 3 || orientation == 4 || orientation == 6 || orientation == 7;
  StoredOrder order{.first = (from_bottom ? (height - 1) * width : 0) + (from_right ? width - 1 : 0),
                    .by_row = from_bottom ? -width : width,
                    .by_column = from_right ? -1 : 1};
  if (swaps_axes(orientation)) std::swap(order.by_row, order.by_column);
  return order;
}

[[noreturn]] void refuse(const ImageFile& file, std::string_view reason,
                         std::source_location where = std::source_location::current()) {
  throw Error(ErrorSource::input,
              fmt::format("the image '{}' cannot be decoded: {}{}{}", file.name, reason,
                          file.remedy.empty() ? "" : "; ", file.remedy),
              where);
}

void refuse_size(const ImageFile& file, std::int64_t height, std::int64_t width, std::int64_t most_per_byte) {
  const std::int64_t most = std::min(kMaxPixels, most_per_byte * static_cast<std::int64_t>(file.bytes.size()));
  if (height > 0 && width > 0 && height <= most / width) return;
  refuse(file,
         fmt::format("its header announces {} x {} pixels, but the file can contain at most {}", height, width, most));
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

class JpegDecoder {
 public:
  explicit JpegDecoder(const ImageFile& file) : file_(file) {}
  ~JpegDecoder() { jpeg_destroy_decompress(&info_); }
  JpegDecoder(const JpegDecoder&) = delete;
  JpegDecoder& operator=(const JpegDecoder&) = delete;

  void read_header() {
    info_.err = jpeg_std_error(&errors_);
    info_.client_data = &trap_;
    errors_.error_exit = [](j_common_ptr info) { fail_with_message(info); };
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

  // One byte per channel and pixel, channels interleaved.
  std::vector<std::uint8_t> decode() {
    const bool is_cmyk = info_.jpeg_color_space == JCS_CMYK || info_.jpeg_color_space == JCS_YCCK;
    const std::size_t width = info_.image_width;
    info_.out_color_space = is_cmyk ? JCS_CMYK : shape()[0] == 1 ? JCS_GRAYSCALE : JCS_RGB;
    const std::size_t row_bytes = width * static_cast<std::size_t>(shape()[0]);
    std::vector<std::uint8_t> pixels(row_bytes * info_.image_height);
    std::vector<std::uint8_t> ink(is_cmyk ? 4 * width : 0);
    perform(file_, trap_, [&] {
      jpeg_start_decompress(&info_);
      while (info_.output_scanline < info_.output_height) {
        std::uint8_t* row = pixels.data() + row_bytes * info_.output_scanline;
        std::uint8_t* target = is_cmyk ? ink.data() : row;
        jpeg_read_scanlines(&info_, &target, 1);
        if (is_cmyk) cmyk_to_rgb(ink, row);
      }
      jpeg_finish_decompress(&info_);
    });
    return pixels;
  }

 private:
  static void fail_with_message(j_common_ptr info) {
    std::array<char, JMSG_LENGTH_MAX> reason{};
    info->err->format_message(info, reason.data());
    fail(*static_cast<ErrorTrap*>(info->client_data), reason.data());
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

  std::vector<std::uint8_t> decode() {
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
    std::vector<std::uint8_t> pixels(row_bytes * static_cast<std::size_t>(image[1]));
    std::vector<png_bytep> rows;
    for (std::size_t at = 0; at < pixels.size(); at += row_bytes) rows.push_back(pixels.data() + at);
    perform(file_, trap_, [&] {
      png_read_image(png_, rows.data());
      png_read_end(png_, nullptr);
    });
    return pixels;
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
bool begins_with(const ImageFile& file, const Signature& signature) {
  return file.bytes.size() >= signature.size() && std::equal(signature.begin(), signature.end(), file.bytes.begin());
}

template <class Action>
auto with_decoder(const ImageFile& file, const Action& action) {
  if (begins_with(file, kJpegSignature)) {
    JpegDecoder decoder(file);
    decoder.read_header();
    return action(decoder);
  }
  if (!begins_with(file, kPngSignature)) refuse(file, "it is neither a JPEG nor a PNG file");
  PngDecoder decoder(file);
  decoder.read_header();
  return action(decoder);
}

// Converts stored pixels with interleaved channels to planes of `image`.
void write_planes(std::span<const std::uint8_t> interleaved, std::ptrdiff_t channels, const Shape& image,
                  const StoredOrder& order, std::span<std::uint8_t> planes) {
  std::uint8_t* target = planes.data();
  for (std::int64_t c = 0; c < image[0]; ++c) {
    for (std::int64_t row = 0; row < image[1]; ++row) {
      const std::ptrdiff_t begin = (order.first + row * order.by_row) * channels + c % channels;
      for (std::int64_t column = 0; column < image[2]; ++column) {
        *target++ = interleaved[static_cast<std::size_t>(begin + column * order.by_column * channels)];
      }
    }
  }
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

}  // namespace

// Segments precede the compressed data: FF (once or more), a type, and a length that includes its own two bytes.
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

bool has_image_signature(std::span<const std::uint8_t> bytes) {
  const ImageFile file{bytes, {}};
  return begins_with(file, kJpegSignature) || begins_with(file, kPngSignature);
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

Shape image_shape(const ImageFile& file) {
  return with_decoder(file, [](auto& decoder) {
    const Shape stored = decoder.shape();
    return swaps_axes(decoder.orientation()) ? Shape{stored[0], stored[2], stored[1]} : stored;
  });
}

Shape decode_image(const ImageFile& file, std::int64_t channels, std::vector<std::uint8_t>& pixels) {
  return with_decoder(file, [&](auto& decoder) {
    const Shape found = decoder.shape();
    if (found[0] > channels) refuse(file, "it is a color image, but the others of its set are gray");
    const bool turned = swaps_axes(decoder.orientation());
    const Shape image{channels, found[turned ? 2 : 1], found[turned ? 1 : 2]};
    const std::vector<std::uint8_t> interleaved = decoder.decode();
    pixels.resize(static_cast<std::size_t>(image.elements()));
    write_planes(interleaved, found[0], image, stored_order(decoder.orientation(), found[1], found[2]), pixels);
    return image;
  });
}

}  // namespace tutti
