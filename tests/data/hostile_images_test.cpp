// Damaged and inconsistent images, tables and data files, drawn by seed: each is refused with an Error that names it,
// or read, and the readers never allocate more than a file of its size can contain.

#include "tutti/base/error.hpp"
#include "tutti/data/data_file.hpp"
#include "tutti/storage/atomic_file.hpp"

#include "data/image_codec.hpp"
#include "data/mutator.hpp"
#include "data/written_images.hpp"
#include "data/written_tiffs.hpp"
#include "support/allocation_watch.hpp"
#include "support/lone_child.hpp"
#include "support/scratch_folder.hpp"

#include <gtest/gtest.h>

#include <functional>

namespace tutti {
namespace {

using testing_support::Bytes;
using testing_support::contents_of;
using testing_support::gradient;
using testing_support::jpeg_of;
using testing_support::mutants;
using testing_support::Mutator;
using testing_support::open_named;
using testing_support::png_of;
using testing_support::tiff_of;
using testing_support::word_at;

constexpr std::size_t kSlack = std::size_t{1} << 18;

// Runs `read` on possibly damaged input; returns whether it succeeded. An error must contain `name`.
bool survives(const std::function<void()>& read, const std::string& name, std::size_t most_bytes) {
  bool was_read = false;
  largest_allocation = 0;
  try {
    read();
    was_read = true;
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find(name), std::string::npos) << error.what();
    EXPECT_TRUE(error.source() == ErrorSource::input || error.source() == ErrorSource::io) << error.what();
  }
  EXPECT_LE(largest_allocation, most_bytes + kSlack);
  return was_read;
}

// Corrects the checksums of all chunks of a PNG, so that damage is not detected by them.
void fix_checksums(Bytes& png) {
  for (std::size_t at = 8; at + 12 <= png.size();) {
    const std::uint64_t length = word_at(png, at);
    if (length > png.size() - at - 12) return;
    const auto sum = static_cast<std::uint32_t>(crc32(0, png.data() + at + 4, static_cast<uInt>(length + 4)));
    Bytes word;
    testing_support::append_word(word, sum);
    std::copy(word.begin(), word.end(), png.begin() + static_cast<std::ptrdiff_t>(at + 8 + length));
    at += length + 12;
  }
}

// Three planes, and three interleaved channels in the libraries.
std::size_t most_bytes_of(const Bytes& file, std::size_t most_pixels_per_byte) {
  return 3 * std::min(static_cast<std::size_t>(kMaxPixels), most_pixels_per_byte * file.size());
}

// Decodes a region, which has the bits of the whole image if that could be decoded.
void decode_some_region(const Bytes& file, const Bytes* planes, Mutator& mutator) {
  Bytes memory;
  Shape image;
  const auto drawn = [&](std::int64_t size) {
    const auto begin = static_cast<std::int64_t>(mutator.below(static_cast<std::size_t>(size)));
    return IndexRange{begin,
                      begin + 1 + static_cast<std::int64_t>(mutator.below(static_cast<std::size_t>(size - begin)))};
  };
  const RegionPixels found = decode_region(
      {file, "a/b.jpg"}, 3,
      [&](const Shape& shape) {
        image = shape;
        return ImageRegion{drawn(shape[1]), drawn(shape[2])};
      },
      memory);
  if (planes == nullptr) return;
  const auto& [rows, columns, eighths] = found.region;
  ASSERT_EQ(eighths, 8);
  for (std::int64_t c = 0; c < 3; ++c) {
    for (std::int64_t y = rows.begin; y < rows.end; ++y) {
      for (std::int64_t x = columns.begin; x < columns.end; ++x) {
        const std::ptrdiff_t at =
            c * found.by_channel + (y - rows.begin) * found.by_row + (x - columns.begin) * found.by_column;
        ASSERT_EQ(found.first[at], (*planes)[static_cast<std::size_t>((c * image[1] + y) * image[2] + x)]);
      }
    }
  }
}

void decode_mutants(const std::vector<Bytes>& seeds, std::size_t most_pixels_per_byte, bool fixes_checksums) {
  const std::uint32_t files = mutants(3000);
  int read = 0;
  Bytes pixels;
  for (std::uint32_t number = 0; number < files && !::testing::Test::HasFailure(); ++number) {
    Mutator mutator(number);
    Bytes file = seeds[mutator.below(seeds.size())];
    for (std::size_t left = 1 + mutator.below(2); left > 0; --left) mutator.damage(file);
    if (fixes_checksums && mutator.once_in(2)) fix_checksums(file);
    SCOPED_TRACE(number);
    const std::size_t most = most_bytes_of(file, most_pixels_per_byte);
    pixels = {};
    const bool was_read = survives([&] { decode_image({file, "a/b.jpg"}, 3, pixels); }, "'a/b.jpg'", most);
    read += was_read ? 1 : 0;
    survives([&] { decode_some_region(file, was_read ? &pixels : nullptr, mutator); }, "'a/b.jpg'", most);
  }
  EXPECT_GT(read, static_cast<int>(files) / 50);
  EXPECT_LT(read, static_cast<int>(files) * 4 / 5);
}

TEST(HostileImages, OfJpegAreRefusedOrDecoded) {
  const auto progressive = [](jpeg_compress_struct& info) { jpeg_simple_progression(&info); };
  const auto restarts = [](jpeg_compress_struct& info) { info.restart_interval = 2; };
  decode_mutants({jpeg_of(gradient(3, 24, 30)), jpeg_of(gradient(1, 17, 9)), jpeg_of(gradient(3, 24, 30), progressive),
                  jpeg_of(gradient(4, 16, 16)), jpeg_of(gradient(3, 40, 20), restarts)},
                 512, /*fixes_checksums=*/false);
}

TEST(HostileImages, OfPngAreRefusedOrDecoded) {
  decode_mutants(
      {png_of(gradient(3, 12, 10)), png_of(gradient(1, 9, 9)),
       png_of(gradient(3, 12, 10), {PNG_COLOR_TYPE_RGB, 8, true}), png_of(gradient(1, 9, 9), {PNG_COLOR_TYPE_PALETTE}),
       png_of(gradient(2, 8, 8), {PNG_COLOR_TYPE_GRAY_ALPHA}),
       png_of({1, 4, 8, Bytes(64, 3)}, {PNG_COLOR_TYPE_GRAY, 16})},
      8 * 1032, /*fixes_checksums=*/true);
}

TEST(HostileImages, OfTiffAreRefusedOrDecoded) {
  decode_mutants(
      {tiff_of(gradient(3, 24, 30), {.compression = COMPRESSION_LZW}),
       tiff_of(gradient(3, 24, 30), {.compression = COMPRESSION_JPEG, .rows_per_strip = 16}),
       tiff_of(gradient(3, 24, 30), {.compression = COMPRESSION_ADOBE_DEFLATE, .tile = 16}),
       tiff_of(gradient(1, 17, 9), {.photometric = PHOTOMETRIC_PALETTE, .compression = COMPRESSION_PACKBITS}),
       tiff_of({1, 4, 8, Bytes(64, 3)}, {.photometric = PHOTOMETRIC_MINISBLACK, .bits = 16, .mode = "wb"})},
      8 * 2560, /*fixes_checksums=*/false);
}

Bytes chunk_of(const std::string& type, const Bytes& data) {
  Bytes chunk;
  testing_support::append_word(chunk, static_cast<std::uint32_t>(data.size()));
  chunk.insert(chunk.end(), type.begin(), type.end());
  chunk.insert(chunk.end(), data.begin(), data.end());
  testing_support::append_word(chunk, 0);  // set by fix_checksums
  return chunk;
}

Bytes compressed_zeros(std::size_t count) {
  const Bytes zeros(count);
  uLongf length = compressBound(static_cast<uLong>(count));
  Bytes packed(length);
  compress(packed.data(), &length, zeros.data(), static_cast<uLong>(count));
  packed.resize(length);
  return packed;
}

// Texts and profiles that a few kilobytes each inflate to megabytes, before and after the pixels.
TEST(HostileImages, OfPngWithManyCompressedTextsTakeNoMemoryForThem) {
  constexpr std::ptrdiff_t kAfterHeader = 33;
  constexpr std::ptrdiff_t kEndBytes = 12;
  const Bytes right = png_of(gradient(3, 12, 10));
  const Bytes text = compressed_zeros(7 << 20);
  Bytes png = right;
  for (const auto& [type, front] : {std::pair("zTXt", Bytes{'a', 0, 0}), std::pair("iTXt", Bytes{'a', 0, 1, 0, 0, 0}),
                                    std::pair("iCCP", Bytes{'a', 0, 0})}) {
    Bytes data = front;
    data.insert(data.end(), text.begin(), text.end());
    const Bytes chunk = chunk_of(type, data);
    for (int i = 0; i < 30; ++i) {
      png.insert(png.begin() + kAfterHeader, chunk.begin(), chunk.end());
      png.insert(png.end() - kEndBytes, chunk.begin(), chunk.end());
    }
  }
  fix_checksums(png);
  const auto peak_kilobytes = [] {
    rusage use{};
    ::getrusage(RUSAGE_SELF, &use);
    return use.ru_maxrss;
  };
  Bytes expected;
  decode_image({right, "right.png"}, 3, expected);
  EXPECT_EQ(outcome_in_child([&] {
              Bytes pixels;
              const long before = peak_kilobytes();
              decode_image({png, "a.png"}, 3, pixels);
              return pixels == expected && peak_kilobytes() < before + (16 << 10);
            }),
            read_right);
}

TEST(HostileTables, AreRefusedOrRead) {
  const ScratchFolder folder;
  for (const char* name : {"a.png", "b.png", "c.png"}) folder.write(name, png_of(gradient(1, 2, 2)));
  const std::string table = "file,label\r\na.png,\"x, \"\"y\"\"\"\r\nb,2\nc.png,x\n";
  const std::uint32_t files = mutants(1500);
  int read = 0;
  for (std::uint32_t number = 0; number < files && !HasFailure(); ++number) {
    Mutator mutator(number);
    Bytes bytes(table.begin(), table.end());
    mutator.damage(bytes);
    folder.write("labels.csv", bytes);
    SCOPED_TRACE(number);
    read += survives([&] { open_named(folder.path()); }, folder.path(), 4 * bytes.size()) ? 1 : 0;
  }
  EXPECT_GT(read, static_cast<int>(files) / 20);
  EXPECT_LT(read, static_cast<int>(files) * 19 / 20);
}

TEST(HostileDataFiles, AreRefusedOrRead) {
  const ScratchFolder folder;
  const std::string path = folder.file("set.h5");
  write_data_file(open_named("synthetic:30x1x6x5:4").pair, path);
  const auto whole = read_file_bytes(path);
  const Bytes good(reinterpret_cast<const std::uint8_t*>(whole.data()),
                   reinterpret_cast<const std::uint8_t*>(whole.data()) + whole.size());
  const std::uint32_t files = mutants(1500);
  int read = 0;
  for (std::uint32_t number = 0; number < files && !HasFailure(); ++number) {
    Mutator mutator(number);
    Bytes bytes = good;
    mutator.damage(bytes);
    folder.write("set.h5", bytes);
    const DataRequest request{.train = path, .most_resident_bytes = mutator.below(2)};
    SCOPED_TRACE(number);
    const auto read_all = [&] { contents_of(*open_data(request).pair.train); };
    read += survives(read_all, "set.h5", 4 * bytes.size()) ? 1 : 0;
  }
  EXPECT_LT(read, static_cast<int>(files) / 2);
}

}  // namespace
}  // namespace tutti
