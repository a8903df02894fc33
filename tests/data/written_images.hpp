#pragma once
// Writes JPEG and PNG files for tests with the image libraries.

#include "data/written_sets.hpp"

#include <jpeglib.h>
#include <png.h>

#include <cstdlib>
#include <functional>

namespace tutti::testing_support {

struct Picture {
  int channels = 3;
  int height = 0;
  int width = 0;
  Bytes pixels;  // channels interleaved
};

// Smooth, so that JPEG nearly preserves it.
inline Picture gradient(int channels, int height, int width, int first = 0) {
  Picture picture{channels, height, width, {}};
  for (int y = 0; y < height; ++y) {
    for (int x = 0; x < width; ++x) {
      for (int c = 0; c < channels; ++c) {
        picture.pixels.push_back(static_cast<std::uint8_t>(first + c * 40 + y * 60 / height + x * 60 / width));
      }
    }
  }
  return picture;
}

// Without any regularity.
inline Picture noise(int channels, int height, int width) {
  Picture picture{channels, height, width, Bytes(static_cast<std::size_t>(channels * height * width))};
  std::uint32_t state = 1;
  for (std::uint8_t& pixel : picture.pixels) {
    state = state * 1664525 + 1013904223;
    pixel = static_cast<std::uint8_t>(state >> 24);
  }
  return picture;
}

// The JPEG file with EXIF data that give it this orientation, in bytes of either order.
inline Bytes turned(const Bytes& jpeg, int orientation, bool little = true, int type = 3) {
  const auto number = [&](int value) {
    const auto low = static_cast<std::uint8_t>(value % 256);
    const auto high = static_cast<std::uint8_t>(value / 256);
    return little ? Bytes{low, high} : Bytes{high, low};
  };
  Bytes data = little ? Bytes{'I', 'I', 42, 0, 8, 0, 0, 0} : Bytes{'M', 'M', 0, 42, 0, 0, 0, 8};
  for (const int value : {2, 0x010F, 2, 0, 0, 0, 0, 0x0112, type, 0, 0, orientation, 0, 0, 0}) {
    for (const std::uint8_t byte : number(value)) data.push_back(byte);
  }
  Bytes file{0xFF, 0xD8, 0xFF, 0xE1, 0, static_cast<std::uint8_t>(data.size() + 8), 'E', 'x', 'i', 'f', 0, 0};
  file.insert(file.end(), data.begin(), data.end());
  file.insert(file.end(), jpeg.begin() + 2, jpeg.end());
  return file;
}

inline J_COLOR_SPACE meaning_of(int channels) {
  return channels == 1 ? JCS_GRAYSCALE : channels == 3 ? JCS_RGB : channels == 4 ? JCS_CMYK : JCS_UNKNOWN;
}

inline Bytes jpeg_of(const Picture& picture, const std::function<void(jpeg_compress_struct&)>& adjust = {}) {
  jpeg_compress_struct info{};
  jpeg_error_mgr errors{};
  info.err = jpeg_std_error(&errors);
  jpeg_create_compress(&info);
  unsigned char* memory = nullptr;
  unsigned long size = 0;
  jpeg_mem_dest(&info, &memory, &size);
  info.image_width = static_cast<JDIMENSION>(picture.width);
  info.image_height = static_cast<JDIMENSION>(picture.height);
  info.input_components = picture.channels;
  info.in_color_space = meaning_of(picture.channels);
  jpeg_set_defaults(&info);
  jpeg_set_quality(&info, 95, TRUE);
  if (adjust) adjust(info);
  jpeg_start_compress(&info, TRUE);
  const auto row_bytes = static_cast<std::size_t>(picture.width * picture.channels);
  while (info.next_scanline < info.image_height) {
    auto* row = const_cast<std::uint8_t*>(picture.pixels.data() + row_bytes * info.next_scanline);
    jpeg_write_scanlines(&info, &row, 1);
  }
  jpeg_finish_compress(&info);
  Bytes bytes(memory, memory + size);
  jpeg_destroy_compress(&info);
  std::free(memory);
  return bytes;
}

struct PngForm {
  int type = PNG_COLOR_TYPE_RGB;
  int bits = 8;
  bool interlaced = false;
};

// `picture.pixels` are the rows as PNG stores them in this form; a palette maps i to (i, 2 i, 3 i).
inline Bytes png_of(const Picture& picture, const PngForm& form) {
  Bytes bytes;
  png_structp png = png_create_write_struct(PNG_LIBPNG_VER_STRING, nullptr, nullptr, nullptr);
  png_infop info = png_create_info_struct(png);
  png_set_write_fn(
      png, &bytes,
      [](png_structp writer, png_bytep data, std::size_t count) {
        auto& all = *static_cast<Bytes*>(png_get_io_ptr(writer));
        all.insert(all.end(), data, data + count);
      },
      nullptr);
  png_set_IHDR(png, info, static_cast<png_uint_32>(picture.width), static_cast<png_uint_32>(picture.height), form.bits,
               form.type, form.interlaced ? PNG_INTERLACE_ADAM7 : PNG_INTERLACE_NONE, PNG_COMPRESSION_TYPE_DEFAULT,
               PNG_FILTER_TYPE_DEFAULT);
  std::vector<png_color> palette;
  for (int i = 0; i < 256; ++i) {
    palette.push_back({static_cast<png_byte>(i), static_cast<png_byte>(2 * i), static_cast<png_byte>(3 * i)});
  }
  if (form.type == PNG_COLOR_TYPE_PALETTE) png_set_PLTE(png, info, palette.data(), 256);
  png_write_info(png, info);
  const std::size_t row_bytes = picture.pixels.size() / static_cast<std::size_t>(picture.height);
  std::vector<png_bytep> rows;
  for (std::size_t y = 0; y < static_cast<std::size_t>(picture.height); ++y) {
    rows.push_back(const_cast<png_bytep>(picture.pixels.data() + y * row_bytes));
  }
  png_write_image(png, rows.data());
  png_write_end(png, nullptr);
  png_destroy_write_struct(&png, &info);
  return bytes;
}

inline Bytes png_of(const Picture& picture) {
  return png_of(picture, {.type = picture.channels == 1 ? PNG_COLOR_TYPE_GRAY : PNG_COLOR_TYPE_RGB});
}

// A gray 2x2 image of this value.
inline Bytes dot(std::uint8_t value) { return png_of({1, 2, 2, Bytes(4, value)}); }

}  // namespace tutti::testing_support
