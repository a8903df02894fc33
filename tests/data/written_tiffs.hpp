#pragma once
// Writes TIFF files for tests with libtiff.

#include "tutti/storage/atomic_file.hpp"

#include "data/written_images.hpp"
#include "support/scratch_folder.hpp"

#include <tiffio.h>

#include <algorithm>
#include <functional>

namespace tutti::testing_support {

struct TiffForm {
  int photometric = PHOTOMETRIC_RGB;
  int bits = 8;
  int compression = COMPRESSION_NONE;
  int rows_per_strip = 4;
  int tile = 0;  // its side; 0: strips
  const char* mode = "w";
};

// `picture.pixels` are the samples as TIFF stores them in this form, with 16 bits in the order of this host; a palette
// maps i to (i, 2 i, 3 i). `adjust` sets more fields.
inline Bytes tiff_of(const Picture& picture, const TiffForm& form = {}, const std::function<void(TIFF*)>& adjust = {}) {
  const ScratchFolder folder;
  TIFF* tiff = TIFFOpen(folder.file("a.tif").c_str(), form.mode);
  TIFFSetField(tiff, TIFFTAG_IMAGEWIDTH, picture.width);
  TIFFSetField(tiff, TIFFTAG_IMAGELENGTH, picture.height);
  TIFFSetField(tiff, TIFFTAG_SAMPLESPERPIXEL, picture.channels);
  TIFFSetField(tiff, TIFFTAG_BITSPERSAMPLE, form.bits);
  TIFFSetField(tiff, TIFFTAG_PHOTOMETRIC, form.photometric);
  TIFFSetField(tiff, TIFFTAG_COMPRESSION, form.compression);
  TIFFSetField(tiff, TIFFTAG_PLANARCONFIG, PLANARCONFIG_CONTIG);
  if (form.tile > 0) {
    TIFFSetField(tiff, TIFFTAG_TILEWIDTH, form.tile);
    TIFFSetField(tiff, TIFFTAG_TILELENGTH, form.tile);
  } else {
    TIFFSetField(tiff, TIFFTAG_ROWSPERSTRIP, form.rows_per_strip);
  }
  std::vector<std::uint16_t> palette[3];
  for (int i = 0; i < 256; ++i) {
    for (int c = 0; c < 3; ++c) palette[c].push_back(static_cast<std::uint16_t>((c + 1) * i % 256 * 257));
  }
  if (form.photometric == PHOTOMETRIC_PALETTE) {
    TIFFSetField(tiff, TIFFTAG_COLORMAP, palette[0].data(), palette[1].data(), palette[2].data());
  }
  if (adjust) adjust(tiff);
  const std::size_t row_bytes = picture.pixels.size() / static_cast<std::size_t>(picture.height);
  if (form.tile > 0) {  // samples of 8 bits
    const int channels = picture.channels;
    for (int top = 0; top < picture.height; top += form.tile) {
      for (int left = 0; left < picture.width; left += form.tile) {
        Bytes tile(static_cast<std::size_t>(form.tile * form.tile * channels));
        for (int y = 0; y < std::min(form.tile, picture.height - top); ++y) {
          const auto from = picture.pixels.begin() + ((top + y) * picture.width + left) * channels;
          std::copy_n(from, std::min(form.tile, picture.width - left) * channels,
                      tile.begin() + y * form.tile * channels);
        }
        TIFFWriteTile(tiff, tile.data(), static_cast<std::uint32_t>(left), static_cast<std::uint32_t>(top), 0, 0);
      }
    }
  } else {
    for (int y = 0; y < picture.height; ++y) {
      Bytes row(picture.pixels.begin() + y * static_cast<std::ptrdiff_t>(row_bytes),
                picture.pixels.begin() + (y + 1) * static_cast<std::ptrdiff_t>(row_bytes));
      TIFFWriteScanline(tiff, row.data(), static_cast<std::uint32_t>(y), 0);
    }
  }
  TIFFClose(tiff);
  const auto bytes = read_file_bytes(folder.file("a.tif"));
  const auto* const first = reinterpret_cast<const std::uint8_t*>(bytes.data());
  return {first, first + bytes.size()};
}

}  // namespace tutti::testing_support
