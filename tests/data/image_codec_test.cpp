#include "data/image_codec.hpp"

#include "tutti/base/error.hpp"
#include "tutti/data/dataset.hpp"

#include "data/refused_images.hpp"
#include "data/written_images.hpp"
#include "support/reports.hpp"
#include "support/thrown.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <functional>
#include <utility>

namespace tutti {
namespace {

using testing_support::Bytes;
using testing_support::gradient;
using testing_support::jpeg_of;
using testing_support::noise;
using testing_support::Picture;
using testing_support::png_of;
using testing_support::PngForm;
using testing_support::refusal_of_image;
using testing_support::turned;

struct Decoded {
  Shape shape;
  Bytes planes;
};

Decoded decode(const Bytes& file, std::int64_t channels = 3) {
  Decoded decoded;
  decoded.shape = decode_image({file, "a/b.jpg"}, channels, decoded.planes);
  return decoded;
}

// Expects `planes` to be the picture's pixels up to this difference.
void expect_pixels(const Decoded& decoded, const Picture& picture, int most_off) {
  ASSERT_EQ(decoded.shape, (Shape{picture.channels, picture.height, picture.width}));
  const auto channels = static_cast<std::size_t>(picture.channels);
  const std::size_t plane = picture.pixels.size() / channels;
  int worst = 0;
  for (std::size_t i = 0; i < picture.pixels.size(); ++i) {
    worst = std::max(worst, std::abs(picture.pixels[i] - decoded.planes[i % channels * plane + i / channels]));
  }
  EXPECT_LE(worst, most_off);
}

TEST(ImageCodec, DecodesPngsOfEveryKindToBytes) {
  for (const bool interlaced : {false, true}) {
    const Picture gray = gradient(1, 5, 7);
    expect_pixels(decode(png_of(gray, {PNG_COLOR_TYPE_GRAY, 8, interlaced}), 1), gray, 0);
    const Picture color = gradient(3, 9, 4);
    expect_pixels(decode(png_of(color, {PNG_COLOR_TYPE_RGB, 8, interlaced})), color, 0);
  }
  const Decoded palette = decode(png_of({1, 1, 2, {5, 70}}, {PNG_COLOR_TYPE_PALETTE}));
  EXPECT_EQ(palette.planes, (Bytes{5, 70, 10, 140, 15, 210}));
  const Decoded alpha = decode(png_of({4, 1, 2, {1, 2, 3, 0, 4, 5, 6, 255}}, {PNG_COLOR_TYPE_RGB_ALPHA}));
  EXPECT_EQ(alpha.planes, (Bytes{1, 4, 2, 5, 3, 6}));
  EXPECT_EQ(decode(png_of({2, 1, 1, {9, 128}}, {PNG_COLOR_TYPE_GRAY_ALPHA}), 1).planes, (Bytes{9}));
  EXPECT_EQ(decode(png_of({1, 1, 9, {0b10110000, 0b10000000}}, {PNG_COLOR_TYPE_GRAY, 1}), 1).planes,
            (Bytes{255, 0, 255, 255, 0, 0, 0, 0, 255}));
  EXPECT_EQ(decode(png_of({1, 1, 2, {0x80, 0x00, 0xFF, 0xFF}}, {PNG_COLOR_TYPE_GRAY, 16}), 1).planes,
            (Bytes{128, 255}));
}

TEST(ImageCodec, DecodesJpegsOfEveryKind) {
  expect_pixels(decode(jpeg_of(gradient(3, 30, 41))), gradient(3, 30, 41), 4);
  expect_pixels(decode(jpeg_of(gradient(1, 17, 8)), 1), gradient(1, 17, 8), 3);
  const auto progressive = [](jpeg_compress_struct& info) { jpeg_simple_progression(&info); };
  expect_pixels(decode(jpeg_of(gradient(3, 30, 41), progressive)), gradient(3, 30, 41), 4);
  const auto as_rgb = [](jpeg_compress_struct& info) { jpeg_set_colorspace(&info, JCS_RGB); };
  expect_pixels(decode(jpeg_of(gradient(3, 16, 16), as_rgb)), gradient(3, 16, 16), 3);
}

TEST(ImageCodec, MixesInksToColors) {
  // Cyan 0, magenta 20, yellow 40 and black 60 of 255, as paper takes them and upside down as Adobe does.
  Picture ink{4, 8, 8, {}};
  for (int i = 0; i < 64; ++i) ink.pixels.insert(ink.pixels.end(), {0, 20, 40, 60});
  Picture mixed{3, 8, 8, {}};
  for (int i = 0; i < 64; ++i) mixed.pixels.insert(mixed.pixels.end(), {195, 179, 164});
  const auto plain = [](jpeg_compress_struct& info) { info.write_Adobe_marker = FALSE; };
  expect_pixels(decode(jpeg_of(ink, plain)), mixed, 3);
  for (auto& byte : ink.pixels) byte = static_cast<std::uint8_t>(255 - byte);
  expect_pixels(decode(jpeg_of(ink)), mixed, 3);
  const auto as_ycck = [](jpeg_compress_struct& info) { jpeg_set_colorspace(&info, JCS_YCCK); };
  expect_pixels(decode(jpeg_of(ink, as_ycck)), mixed, 4);
}

TEST(ImageCodec, MakesGrayColorButNotColorGray) {
  const Picture gray = gradient(1, 4, 4);
  const Decoded decoded = decode(png_of(gray), 3);
  EXPECT_EQ(decoded.shape, (Shape{3, 4, 4}));
  for (std::size_t c = 0; c < 3; ++c) {
    EXPECT_TRUE(std::equal(gray.pixels.begin(), gray.pixels.end(), decoded.planes.begin() + static_cast<long>(16 * c)));
  }
  EXPECT_THAT(refusal_of_image(png_of(gradient(3, 4, 4)), 1), mentions("a color image", "gray"));
}

// The sides of the upright image at which the stored image's first row and first column are, by orientation.
struct Sides {
  char row;
  char column;
};
constexpr std::array<Sides, 8> kSides{
    {{'t', 'l'}, {'t', 'r'}, {'b', 'r'}, {'b', 'l'}, {'l', 't'}, {'r', 't'}, {'r', 'b'}, {'l', 'b'}}};

Picture steep(int height, int width) {
  Picture picture{3, height, width, {}};
  for (int y = 0; y < height; ++y) {
    for (int x = 0; x < width; ++x) {
      for (int c = 0; c < 3; ++c) picture.pixels.push_back(static_cast<std::uint8_t>(20 * c + 12 * y + 2 * x));
    }
  }
  return picture;
}

Picture stored_as(const Picture& upright, const Sides& sides) {
  const bool on_its_side = sides.row == 'l' || sides.row == 'r';
  Picture stored = upright;
  if (on_its_side) std::swap(stored.height, stored.width);
  stored.pixels.clear();
  for (int row = 0; row < stored.height; ++row) {
    for (int column = 0; column < stored.width; ++column) {
      int y = on_its_side ? column : row;
      int x = on_its_side ? row : column;
      if (sides.row == 'b' || sides.column == 'b') y = upright.height - 1 - y;
      if (sides.row == 'r' || sides.column == 'r') x = upright.width - 1 - x;
      const auto pixel = upright.pixels.begin() + 3 * (y * upright.width + x);
      stored.pixels.insert(stored.pixels.end(), pixel, pixel + 3);
    }
  }
  return stored;
}

TEST(ImageCodec, TurnsJpegsUprightAsTheirExifDataSay) {
  const Picture upright = steep(9, 14);
  for (int orientation = 1; orientation <= 8; ++orientation) {
    const Picture stored = stored_as(upright, kSides.at(static_cast<std::size_t>(orientation) - 1));
    for (const bool little : {true, false}) {
      const Bytes file = turned(jpeg_of(stored), orientation, little);
      EXPECT_EQ(exif_orientation(file), orientation);
      EXPECT_EQ(image_shape({file, "x"}), (Shape{3, 9, 14}));
      expect_pixels(decode(file), upright, 8);
      Decoded as_stored;
      as_stored.shape = decode_image({file, "x", false}, 3, as_stored.planes);
      expect_pixels(as_stored, stored, 8);
    }
  }
}

TEST(ImageCodec, IgnoresInvalidExifData) {
  const Bytes jpeg = jpeg_of(steep(8, 8));
  EXPECT_EQ(exif_orientation(jpeg), 1);
  for (const int orientation : {0, 9, 255, 0x600}) EXPECT_EQ(exif_orientation(turned(jpeg, orientation)), 1);
  EXPECT_EQ(exif_orientation(turned(jpeg, 6, true, 2)), 1);
  const Bytes good = turned(jpeg, 6);
  for (std::size_t bytes = 0; bytes < 50; ++bytes) {
    const Bytes cut(good.begin(), good.begin() + static_cast<long>(bytes));
    EXPECT_EQ(exif_orientation(cut), 1) << bytes;
  }
  for (std::size_t at = 2; at < 50; ++at) {
    for (int value = 0; value < 256; ++value) {
      Bytes changed = good;
      changed[at] = static_cast<std::uint8_t>(value);
      const int found = exif_orientation(changed);
      EXPECT_TRUE(found >= 1 && found <= 8) << at << ": " << found;
    }
  }
}

TEST(ImageCodec, ReadsTheShapeFromTheHeader) {
  EXPECT_EQ(image_shape({jpeg_of(gradient(1, 6, 5)), "x"}), (Shape{1, 6, 5}));
  EXPECT_EQ(image_shape({png_of(gradient(3, 6, 5)), "x"}), (Shape{3, 6, 5}));
  EXPECT_EQ(image_shape({png_of({1, 1, 1, {0}}, {PNG_COLOR_TYPE_PALETTE}), "x"}), (Shape{3, 1, 1}));
}

TEST(ImageCodec, RefusesOtherFilesByName) {
  EXPECT_THAT(refusal_of_image({}), mentions("neither a JPEG nor a PNG nor a TIFF file"));
  EXPECT_THAT(refusal_of_image({'G', 'I', 'F', '8', '9', 'a'}), mentions("neither a JPEG nor a PNG nor a TIFF file"));
  EXPECT_THAT(refusal_of_image(jpeg_of({2, 1, 1, {1, 2}})), mentions("2 components in an unknown color space"));
}

TEST(ImageCodec, RefusesAFileCutShortAnywhere) {
  for (const Bytes& whole : {jpeg_of(gradient(3, 20, 20)), png_of(gradient(3, 20, 20)),
                             jpeg_of(gradient(3, 20, 20), [](auto& info) { jpeg_simple_progression(&info); }),
                             png_of(gradient(3, 20, 20), {PNG_COLOR_TYPE_RGB, 8, true})}) {
    for (std::size_t length = 0; length < whole.size(); ++length) {
      refusal_of_image(Bytes(whole.begin(), whole.begin() + static_cast<std::ptrdiff_t>(length)));
    }
  }
}

// A file, and its pixels from a whole decode.
struct Whole {
  explicit Whole(Bytes bytes) : file(std::move(bytes)), decoded(decode(file)) {}

  // The pixels of a region, decoded alone, are those of the whole.
  void expect_same(const ImageRegion& region) {
    const RegionPixels found = decode_region(
        {file, "a/b.jpg"}, 3,
        [&](const Shape& shape) {
          EXPECT_EQ(shape, decoded.shape);
          return region;
        },
        memory);
    EXPECT_EQ(found.region.rows, region.rows);
    EXPECT_EQ(found.region.columns, region.columns);
    const std::int64_t width = decoded.shape[2];
    for (std::int64_t c = 0; c < 3; ++c) {
      for (std::int64_t row = region.rows.begin; row < region.rows.end; ++row) {
        const std::uint8_t* const expected = decoded.planes.data() + (c * decoded.shape[1] + row) * width;
        const std::uint8_t* pixel = found.first + c * found.by_channel + (row - region.rows.begin) * found.by_row;
        for (std::int64_t column = region.columns.begin; column < region.columns.end; ++column) {
          ASSERT_EQ(*pixel, expected[column])
              << row << ", " << column << " of rows " << region.rows.begin << " to " << region.rows.end << ", columns "
              << region.columns.begin << " to " << region.columns.end;
          pixel += found.by_column;
        }
      }
    }
  }

  // All ranges of rows with a few of columns, and the other way round.
  void expect_same_in_all_regions() {
    const IndexRange some[] = {{0, 1}, {0, 25}, {16, 17}, {15, 33}, {17, 31}};
    for (const bool turned : {false, true}) {
      const std::int64_t length = decoded.shape[turned ? 2 : 1];
      const std::int64_t other = decoded.shape[turned ? 1 : 2];
      for (std::int64_t begin = 0; begin < length; ++begin) {
        for (std::int64_t end = begin + 1; end <= length; end += 1 + (end - begin) % 7) {
          IndexRange across = some[static_cast<std::size_t>(begin + end) % std::size(some)];
          if ((begin + end) % 4 == 0) across = {across.begin, other};
          const IndexRange along{begin, end};
          expect_same(turned ? ImageRegion{across, along} : ImageRegion{along, across});
          if (::testing::Test::HasFatalFailure()) return;
        }
      }
    }
  }

  Bytes file;
  Decoded decoded;
  Bytes memory;
};

// The sampling factors of the first component; those of the others are 1.
struct Sampling {
  int across;
  int down;
};

std::function<void(jpeg_compress_struct&)> sampled(const Sampling& sampling,
                                                   const std::function<void(jpeg_compress_struct&)>& more = {}) {
  return [=](jpeg_compress_struct& info) {
    info.comp_info[0].h_samp_factor = sampling.across;
    info.comp_info[0].v_samp_factor = sampling.down;
    if (more) more(info);
  };
}

TEST(ImageCodec, DecodesARegionToTheBitsOfTheWholeImage) {
  const auto progressive = [](jpeg_compress_struct& info) { jpeg_simple_progression(&info); };
  const auto restarts = [](jpeg_compress_struct& info) { info.restart_interval = 3; };
  static constexpr std::array<jpeg_scan_info, 3> kScans{
      {{1, {0}, 0, 63, 0, 0}, {1, {1}, 0, 63, 0, 0}, {1, {2}, 0, 63, 0, 0}}};
  const auto one_by_one = [](jpeg_compress_struct& info) {
    info.scan_info = kScans.data();
    info.num_scans = static_cast<int>(kScans.size());
  };
  const Picture picture = noise(3, 53, 61);
  for (const Sampling& sampling : {Sampling{1, 1}, {2, 1}, {2, 2}, {1, 2}, {4, 1}, {4, 2}}) {
    SCOPED_TRACE(sampling.across * 10 + sampling.down);
    Whole(jpeg_of(picture, sampled(sampling))).expect_same_in_all_regions();
    Whole(jpeg_of(picture, sampled(sampling, progressive))).expect_same_in_all_regions();
    Whole(jpeg_of(picture, sampled(sampling, restarts))).expect_same_in_all_regions();
    Whole(jpeg_of(picture, sampled(sampling, one_by_one))).expect_same_in_all_regions();
  }
  for (const int width : {33, 34, 35, 48}) Whole(jpeg_of(noise(3, 34, width))).expect_same_in_all_regions();
  const auto as_ycck = [](jpeg_compress_struct& info) { jpeg_set_colorspace(&info, JCS_YCCK); };
  Whole(jpeg_of(noise(4, 53, 61))).expect_same_in_all_regions();
  Whole(jpeg_of(noise(4, 53, 61), as_ycck)).expect_same_in_all_regions();
  Whole(jpeg_of(noise(1, 53, 61))).expect_same_in_all_regions();
  Whole(png_of(noise(1, 53, 61))).expect_same_in_all_regions();
  Whole(png_of(picture)).expect_same_in_all_regions();
}

TEST(ImageCodec, DecodesARegionOfAScaledImageToTheBitsOfTheWholeScaledImage) {
  const auto progressive = [](jpeg_compress_struct& info) { jpeg_simple_progression(&info); };
  Bytes whole_memory;
  Bytes memory;
  for (const std::int64_t eighths : {1, 2, 4}) {
    for (const Sampling& sampling : {Sampling{1, 1}, {2, 1}, {2, 2}, {1, 2}, {4, 1}}) {
      for (const Bytes& file : {jpeg_of(noise(3, 235, 251), sampled(sampling)),
                                jpeg_of(noise(3, 235, 251), sampled(sampling, progressive))}) {
        SCOPED_TRACE(eighths * 100 + sampling.across * 10 + sampling.down);
        const std::int64_t height = scaled_size(235, eighths);
        const std::int64_t width = scaled_size(251, eighths);
        const auto decoded = [&](const ImageRegion& region, Bytes& into) {
          return decode_region(
              {file, "x"}, 3, [&](const Shape&) { return region; }, into);
        };
        const RegionPixels whole = decoded({{0, height}, {0, width}, eighths}, whole_memory);
        for (std::int64_t begin = 0; begin < height; begin += 1 + eighths) {
          const ImageRegion region{{begin, begin + 1 + (height - begin) / 3}, {begin / 2, width - begin / 3}, eighths};
          const RegionPixels part = decoded(region, memory);
          for (std::int64_t row = 0; row < region.rows.size(); ++row) {
            for (std::int64_t column = 0; column < region.columns.size(); ++column) {
              for (std::int64_t c = 0; c < 3; ++c) {
                ASSERT_EQ(part.first[row * part.by_row + column * part.by_column + c],
                          whole.first[(begin + row) * whole.by_row + (begin / 2 + column) * whole.by_column + c]);
              }
            }
          }
        }
      }
    }
  }
}

TEST(ImageCodec, DecodesARegionOfTheUprightImage) {
  for (int orientation = 1; orientation <= 8; ++orientation) {
    SCOPED_TRACE(orientation);
    Whole(turned(jpeg_of(noise(3, 49, 61)), orientation)).expect_same_in_all_regions();
  }
}

TEST(ImageCodec, DecodesARegionOfAProgressiveFileThatEndsEarlyToTheBitsOfTheWholeImage) {
  Bytes file = jpeg_of(gradient(3, 90, 100), [](auto& info) { jpeg_simple_progression(&info); });
  const Bytes scan{0xFF, 0xDA};
  auto second = std::search(file.begin(), file.end(), scan.begin(), scan.end());
  second = std::search(second + 2, file.end(), scan.begin(), scan.end());
  file.erase(second, file.end() - 2);
  Whole(file).expect_same_in_all_regions();
}

// The first rows and columns.
ImageRegion corner(const Shape& /*image*/) { return {{0, 4}, {0, 4}}; }

TEST(ImageCodec, RefusesAFileCutShortAnywhereBelowTheRegion) {
  Bytes memory;
  for (const Bytes& whole : {jpeg_of(noise(3, 40, 20)), png_of(noise(3, 40, 20)),
                             jpeg_of(noise(3, 40, 20), [](auto& info) { jpeg_simple_progression(&info); })}) {
    for (std::size_t length = 0; length < whole.size(); ++length) {
      const Bytes cut(whole.begin(), whole.begin() + static_cast<std::ptrdiff_t>(length));
      const Error error = thrown_by([&] { decode_region({cut, "a/b.jpg"}, 3, corner, memory); });
      EXPECT_THAT(error, reports(ErrorSource::input, "the image 'a/b.jpg' cannot be decoded: "));
    }
  }
}

TEST(ImageCodec, DecodesNoRowsBelowTheRegion) {
  Bytes file = jpeg_of(noise(3, 160, 40));
  Whole whole(file);
  const std::size_t at = file.size() * 3 / 4;
  file[at] = 0xFF;
  file[at + 1] = 0xD9;  // the end marker
  EXPECT_THAT(refusal_of_image(file), mentions("premature end"));
  whole.file = file;
  whole.expect_same({{0, 70}, {0, 40}});
  Bytes memory;
  const auto last_rows = [](const Shape&) { return ImageRegion{{150, 160}, {0, 40}}; };
  const Error error = thrown_by([&] { decode_region({file, "a/b.jpg"}, 3, last_rows, memory); });
  EXPECT_THAT(error, reports(ErrorSource::input, "'a/b.jpg'", "premature end"));
}

TEST(ImageCodec, DecodesAFileToItsEndIfSomethingFollowsIt) {
  Bytes file = jpeg_of(noise(3, 53, 61));
  file.insert(file.end(), 100, 7);
  Whole(file).expect_same_in_all_regions();
}

TEST(ImageCodec, RefusesDimensionsThatTheFileCannotHold) {
  Bytes png = png_of(gradient(1, 4, 4));
  png[17] = png[21] = 1;  // 65,540 x 65,540, with the matching checksum
  const auto sum = static_cast<std::uint32_t>(crc32(0, png.data() + 12, 17));
  for (std::size_t i = 0; i < 4; ++i) png[29 + i] = static_cast<std::uint8_t>(sum >> (24 - 8 * i));
  EXPECT_THAT(refusal_of_image(png), mentions("announces 65540 x 65540 pixels"));
  Bytes jpeg = jpeg_of(gradient(1, 8, 8));
  const Bytes marker{0xFF, 0xC0};
  const auto frame = std::search(jpeg.begin(), jpeg.end(), marker.begin(), marker.end()) - jpeg.begin();
  std::fill_n(jpeg.begin() + frame + 5, 4, 0x7F);
  EXPECT_THAT(refusal_of_image(jpeg), mentions("announces 32639 x 32639 pixels"));
}

TEST(ImageCodec, RefusesEndlessScans) {
  static std::vector<jpeg_scan_info> scans;
  scans.assign(1, {1, {0}, 0, 0, 0, 0});
  scans.resize(130, {1, {0}, 1, 63, 0, 0});
  for (std::size_t i = 1; i < scans.size(); ++i) {
    const int k = static_cast<int>((i - 1) % 63) + 1;
    const int round = static_cast<int>((i - 1) / 63);
    scans[i] = {1, {0}, k, k, round == 0 ? 0 : 3 - round, 2 - round};
  }
  scans.resize(127);
  const auto many_scans = [](jpeg_compress_struct& info) {
    info.scan_info = scans.data();
    info.num_scans = static_cast<int>(scans.size());
  };
  EXPECT_THAT(refusal_of_image(jpeg_of(gradient(1, 16, 16), many_scans), 1), mentions("too many scans"));
}

TEST(ImageCodec, WritesPngsThatDecodeToTheSamePixels) {
  for (const Shape& shape : {Shape{1, 5, 7}, Shape{3, 4, 9}, Shape{3, 1, 1}}) {
    Bytes planes(static_cast<std::size_t>(shape.elements()));
    for (std::size_t i = 0; i < planes.size(); ++i) planes[i] = static_cast<std::uint8_t>(i * 37 % 256);
    const std::vector<std::byte> file = encode_png({planes.data(), shape});
    const auto* bytes = reinterpret_cast<const std::uint8_t*>(file.data());
    const Decoded decoded = decode(Bytes(bytes, bytes + file.size()), shape[0]);
    EXPECT_EQ(decoded.shape, shape);
    EXPECT_EQ(decoded.planes, planes);
  }
}

TEST(ImageCodec, WritesNoPngOfOtherThanGrayAndColor) {
  const Bytes planes(24);
  for (const Shape& shape : {Shape{2, 3, 4}, Shape{1, 0, 4}, Shape{4, 6}}) {
    const Error error = thrown_by([&] { encode_png({planes.data(), shape}); });
    EXPECT_THAT(error, reports(ErrorSource::internal, "an image of " + shape.text(), "PNG"));
  }
}

}  // namespace
}  // namespace tutti
