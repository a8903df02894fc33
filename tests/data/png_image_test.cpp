#include "tutti/data/png_image.hpp"

#include "tutti/base/error.hpp"
#include "tutti/storage/whole_file.hpp"

#include "data/written_sets.hpp"

#include <gtest/gtest.h>

#include <filesystem>

namespace tutti {
namespace {

using testing::Bytes;
using testing::contents_of;
using testing::open_named;
using testing::TemporaryFolder;

Bytes scattered(std::int64_t count) {
  Bytes bytes;
  for (std::int64_t i = 0; i < count; ++i) bytes.push_back(static_cast<std::uint8_t>(i * i * 31 + i / 7));
  return bytes;
}

TEST(PngImage, IsReadBackAsItWasWritten) {
  for (const std::int64_t channels : {1, 3}) {
    const TemporaryFolder folder;
    const Shape shape{channels, 37, 53};
    const Bytes pixels = scattered(shape.elements());
    std::filesystem::create_directories(folder.path() / "class");
    write_whole(folder.text() + "/class/1.png", encode_png({pixels.data(), shape}));
    const OwnedData data = open_named(folder.text());
    EXPECT_EQ(data.pair.train->info().image, shape);
    EXPECT_EQ(contents_of(*data.pair.train).images, pixels);
  }
}

TEST(PngImage, SaysWhyAnImageCannotBecomeOne) {
  const Bytes pixels(3);
  EXPECT_THROW(encode_png({pixels.data(), Shape{3, 0, 1}}), Error);
}

}  // namespace
}  // namespace tutti
