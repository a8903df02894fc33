#include "data/image_codec.hpp"
#include "data/refused_images.hpp"
#include "data/written_tiffs.hpp"
#include "support/reports.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>

namespace tutti {
namespace {

using testing_support::Bytes;
using testing_support::gradient;
using testing_support::noise;
using testing_support::Picture;
using testing_support::refusal_of_image;
using testing_support::tiff_of;
using testing_support::TiffForm;

// Pixels with their channels interleaved.
struct DecodedTiff {
  Shape shape;
  Bytes pixels;
};

DecodedTiff decode_tiff(const Bytes& file, std::int64_t channels = 3, bool applies_exif = true) {
  Bytes planes;
  const Shape shape = decode_image({file, "a/b.tif", applies_exif}, channels, planes);
  EXPECT_EQ(image_shape({file, "a/b.tif", applies_exif}).without_first(), shape.without_first());
  DecodedTiff decoded{shape, Bytes(planes.size())};
  const std::size_t plane = planes.size() / static_cast<std::size_t>(channels);
  for (std::size_t i = 0; i < planes.size(); ++i) {
    decoded.pixels[i % plane * static_cast<std::size_t>(channels) + i / plane] = planes[i];
  }
  return decoded;
}

Bytes halves(const std::vector<int>& samples) {
  Bytes bytes(2 * samples.size());
  for (std::size_t i = 0; i < samples.size(); ++i) {
    const auto value = static_cast<std::uint16_t>(samples[i]);
    std::memcpy(bytes.data() + 2 * i, &value, 2);
  }
  return bytes;
}

TEST(TiffDecoder, DecodesEveryCompressionAndLayoutToTheSamePixels) {
  const Picture color = noise(3, 21, 18);
  const Picture gray = noise(1, 21, 18);
  for (const int compression :
       {COMPRESSION_NONE, COMPRESSION_LZW, COMPRESSION_ADOBE_DEFLATE, COMPRESSION_DEFLATE, COMPRESSION_PACKBITS}) {
    for (const int tile : {0, 16}) {
      for (const char* mode : {"wl", "wb", "w8"}) {  // little and big endian, and offsets of 64 bits
        SCOPED_TRACE(compression);
        const TiffForm form{.compression = compression, .tile = tile, .mode = mode};
        EXPECT_EQ(decode_tiff(tiff_of(color, form)).pixels, color.pixels);
        TiffForm of_gray = form;
        of_gray.photometric = PHOTOMETRIC_MINISBLACK;
        EXPECT_EQ(decode_tiff(tiff_of(gray, of_gray), 1).pixels, gray.pixels);
      }
    }
  }
  const Picture smooth = gradient(3, 32, 32);
  const DecodedTiff jpeg = decode_tiff(tiff_of(smooth, {.compression = COMPRESSION_JPEG, .rows_per_strip = 16}));
  for (std::size_t i = 0; i < smooth.pixels.size(); ++i) EXPECT_NEAR(jpeg.pixels[i], smooth.pixels[i], 12);
}

TEST(TiffDecoder, DecodesEveryKindOfPixelToBytes) {
  const TiffForm gray{.photometric = PHOTOMETRIC_MINISBLACK, .bits = 16};
  for (const char* mode : {"wl", "wb"}) {
    TiffForm form = gray;
    form.mode = mode;
    EXPECT_EQ(decode_tiff(tiff_of({1, 1, 3, halves({0x8001, 0xFFFF, 0x00FF})}, form), 1).pixels,
              (Bytes{0x80, 0xFF, 1}));
  }
  EXPECT_EQ(decode_tiff(tiff_of({3, 1, 1, halves({0x1010, 0x8080, 0xFFFF})}, {.bits = 16})).pixels,
            (Bytes{0x10, 0x80, 0xFF}));
  EXPECT_EQ(decode_tiff(tiff_of({1, 1, 2, {5, 70}}, {.photometric = PHOTOMETRIC_PALETTE})).pixels,
            (Bytes{5, 10, 15, 70, 140, 210}));
  EXPECT_EQ(decode_tiff(tiff_of({1, 1, 2, {5, 70}}, {.photometric = PHOTOMETRIC_MINISWHITE}), 1).pixels,
            (Bytes{250, 185}));
  EXPECT_EQ(
      decode_tiff(tiff_of({1, 1, 9, {0b10110000, 0b10000000}}, {.photometric = PHOTOMETRIC_MINISBLACK, .bits = 1}), 1)
          .pixels,
      (Bytes{255, 0, 255, 255, 0, 0, 0, 0, 255}));
  EXPECT_EQ(decode_tiff(tiff_of({1, 1, 1, {9}}, {.photometric = PHOTOMETRIC_MINISBLACK}), 3).pixels, (Bytes{9, 9, 9}));
}

TEST(TiffDecoder, DropsAlpha) {
  for (const std::uint16_t kind : {EXTRASAMPLE_UNSPECIFIED, EXTRASAMPLE_ASSOCALPHA, EXTRASAMPLE_UNASSALPHA}) {
    const auto with_alpha = [&](TIFF* tiff) { TIFFSetField(tiff, TIFFTAG_EXTRASAMPLES, 1, &kind); };
    EXPECT_EQ(decode_tiff(tiff_of({4, 1, 2, {1, 2, 3, 0, 40, 50, 60, 128}}, {}, with_alpha)).pixels,
              (Bytes{1, 2, 3, 40, 50, 60}));
    EXPECT_EQ(
        decode_tiff(tiff_of({2, 1, 2, {9, 0, 80, 128}}, {.photometric = PHOTOMETRIC_MINISBLACK}, with_alpha), 1).pixels,
        (Bytes{9, 80}));
  }
}

TEST(TiffDecoder, TurnsImagesUprightAsTheyRecord) {
  // The stored rows are 1 2 3 and 4 5 6.
  const Bytes expected[] = {{1, 2, 3, 4, 5, 6}, {3, 2, 1, 6, 5, 4}, {6, 5, 4, 3, 2, 1}, {4, 5, 6, 1, 2, 3},
                            {1, 4, 2, 5, 3, 6}, {4, 1, 5, 2, 6, 3}, {6, 3, 5, 2, 4, 1}, {3, 6, 2, 5, 1, 4}};
  for (int orientation = 1; orientation <= 8; ++orientation) {
    const Bytes file = tiff_of({1, 2, 3, {1, 2, 3, 4, 5, 6}}, {.photometric = PHOTOMETRIC_MINISBLACK},
                               [&](TIFF* tiff) { TIFFSetField(tiff, TIFFTAG_ORIENTATION, orientation); });
    EXPECT_EQ(exif_orientation(file), orientation);
    EXPECT_EQ(decode_tiff(file, 1).pixels, expected[orientation - 1]) << orientation;
    EXPECT_EQ(decode_tiff(file, 1, /*applies_exif=*/false).pixels, expected[0]);
  }
}

TEST(TiffDecoder, RefusesWhatItDoesNotReadByName) {
  const auto floating = [](TIFF* tiff) { TIFFSetField(tiff, TIFFTAG_SAMPLEFORMAT, SAMPLEFORMAT_IEEEFP); };
  EXPECT_THAT(
      refusal_of_image(tiff_of({1, 1, 1, Bytes(4)}, {.photometric = PHOTOMETRIC_MINISBLACK, .bits = 32}, floating), 1),
      mentions("floating point", "convert it to 8 bits a sample"));
  EXPECT_THAT(refusal_of_image(tiff_of({1, 1, 1, Bytes(4)}, {.photometric = PHOTOMETRIC_MINISBLACK, .bits = 32}), 1),
              mentions("1 to 16 bits a sample", "32-bit samples"));
  EXPECT_THAT(refusal_of_image(
                  tiff_of({1, 8, 8, Bytes(8)},
                          {.photometric = PHOTOMETRIC_MINISWHITE, .bits = 1, .compression = COMPRESSION_CCITTFAX4}),
                  1),
              mentions("the compression 4: ", "use none, LZW, Deflate, PackBits or JPEG"));
  EXPECT_THAT(refusal_of_image(tiff_of(gradient(3, 2, 2)), 1), mentions("a color image", "gray"));
}

// Another value of a field in the first directory, of a little endian file.
Bytes with_field(Bytes file, int tag, std::uint32_t value) {
  std::uint32_t at = 0;
  std::memcpy(&at, file.data() + 4, 4);
  const int entries = file[at] + 256 * file[at + 1];
  for (int i = 0; i < entries; ++i) {
    std::uint8_t* entry = file.data() + at + 2 + 12 * i;
    if (entry[0] + 256 * entry[1] != tag) continue;
    entry[2] = 4;  // 32 bits
    std::memcpy(entry + 8, &value, 4);
  }
  return file;
}

TEST(TiffDecoder, RefusesSizesThatTheFileCannotHave) {
  const TiffForm form{.rows_per_strip = 64, .mode = "wl"};
  const Bytes file = tiff_of(gradient(3, 40, 40), form);
  EXPECT_THAT(refusal_of_image(with_field(file, TIFFTAG_IMAGEWIDTH, 4'000'000'000)),
              mentions("announces 40 x 4000000000 pixels"));
  EXPECT_THAT(refusal_of_image(with_field(file, TIFFTAG_IMAGELENGTH, 40'000'000)),
              mentions("announces 40000000 x 40 pixels"));
  EXPECT_THAT(refusal_of_image(with_field(file, TIFFTAG_STRIPOFFSETS, 4'000'000'000)),
              mentions("the file ends too early"));
  const Bytes tiled = tiff_of(gradient(3, 40, 40), {.tile = 64, .mode = "wl"});
  EXPECT_THAT(refusal_of_image(with_field(tiled, TIFFTAG_TILELENGTH, 1 << 30)),
              mentions("announces 1073741824 x 64 pixels"));
}

TEST(TiffDecoder, RefusesAFileCutShortAnywhere) {
  for (const int compression : {COMPRESSION_NONE, COMPRESSION_LZW}) {
    const Bytes whole = tiff_of(gradient(3, 20, 20), {.compression = compression});
    for (std::size_t length = 0; length < whole.size(); ++length) {
      refusal_of_image(Bytes(whole.begin(), whole.begin() + static_cast<std::ptrdiff_t>(length)));
    }
  }
}

}  // namespace
}  // namespace tutti
