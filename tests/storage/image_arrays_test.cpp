#include "tutti/storage/image_arrays.hpp"

#include "tutti/base/crc32c.hpp"
#include "tutti/storage/whole_file.hpp"

#include "support/scratch_folder.hpp"
#include "support/thrown.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <limits>

namespace tutti {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

constexpr std::int64_t kMost = std::numeric_limits<std::int64_t>::max();

StoredImage sample_image() {
  ArrayImage image;
  image.add("/g/floats", {2, 3}, std::span<const float>(std::array{1.f, 2.f, 3.f, 4.f, 5.f, 6.f}));
  image.add("/g/none", {3, 0}, std::span<const float>());
  image.add("/g/deep/double", {}, std::span<const double>(std::array{0.1}));
  image.add("/int", {1}, std::span<const std::int32_t>(std::array{-1}));
  image.add("/long", {2}, std::span<const std::int64_t>(std::array{kMost, -kMost}));
  image.add_text("/text", "words");
  image.add_text("/void", "");
  return image.finish();
}

template <class T, class Source>
std::vector<T> values_in(const Source& source, const std::string& name) {
  std::vector<T> values(static_cast<std::size_t>(source.shape(name).elements()));
  source.read(name, source.shape(name), std::span<T>(values));
  return values;
}

TEST(ImageArrays, FindByTheTableWhatHdf5FindsInTheFile) {
  const StoredImage image = sample_image();
  const ImageArrays arrays(image.bytes, image.arrays, "image");
  const ScratchFolder folder;
  write_whole(folder.file("f.h5"), image.bytes);
  const ArrayFile file(folder.file("f.h5"));

  EXPECT_EQ(arrays.names("/"), file.names("/"));
  EXPECT_THAT(arrays.names("/g"), ElementsAre("/g/deep/double", "/g/floats", "/g/none"));
  EXPECT_TRUE(arrays.names("/nothing").empty());
  EXPECT_TRUE(arrays.contains("/int"));
  EXPECT_FALSE(arrays.contains("/g"));
  EXPECT_EQ(values_in<float>(arrays, "/g/floats"), values_in<float>(file, "/g/floats"));
  EXPECT_EQ(values_in<float>(arrays, "/g/none"), values_in<float>(file, "/g/none"));
  EXPECT_EQ(values_in<double>(arrays, "/g/deep/double"), values_in<double>(file, "/g/deep/double"));
  EXPECT_EQ(values_in<std::int32_t>(arrays, "/int"), values_in<std::int32_t>(file, "/int"));
  EXPECT_EQ(values_in<std::int64_t>(arrays, "/long"), values_in<std::int64_t>(file, "/long"));
  for (const char* name : {"/text", "/void"}) EXPECT_EQ(arrays.read_text(name), file.read_text(name));
}

TEST(ImageArrays, RefuseOtherTypesShapesAndNames) {
  const StoredImage image = sample_image();
  const ImageArrays arrays(image.bytes, image.arrays, "image");
  const auto refusal = [](auto action) {
    const Error error = thrown_by(action);
    EXPECT_EQ(error.source(), ErrorSource::input);
    EXPECT_THAT(error.what(), HasSubstr("'image', array '/"));
    return std::string(error.what());
  };
  std::array<float, 6> six{};
  std::array<std::int32_t, 6> numbers{};
  EXPECT_THAT(refusal([&] { arrays.read("/g/floats", {6}, std::span(six)); }), HasSubstr("2x3 instead of 6"));
  EXPECT_THAT(refusal([&] { arrays.read("/g/floats", {2, 3}, std::span(six).first(5)); }), HasSubstr("room for 5"));
  EXPECT_THAT(refusal([&] { arrays.read("/g/floats", {2, 3}, std::span(numbers)); }), HasSubstr("another type"));
  EXPECT_THAT(refusal([&] { arrays.read("/g/floaty", {6}, std::span(six)); }), HasSubstr("no array of this name"));
  EXPECT_THAT(refusal([&] { arrays.read_text("/int"); }), HasSubstr("no text"));
  EXPECT_THAT(refusal([&] { static_cast<void>(arrays.shape("/g")); }), HasSubstr("no array of this name"));
}

TEST(ImageArrays, RefuseATableThatDoesNotFitTheImage) {
  const StoredImage whole = sample_image();
  const auto refuses = [&](const std::string& name, const std::function<void(StoredArray&, StoredImage&)>& change,
                           const std::string& reason) {
    StoredImage image = whole;
    const auto array = std::ranges::find(image.arrays, name, &StoredArray::name);
    ASSERT_NE(array, image.arrays.end());
    StoredArray changed = *array;
    change(changed, image);
    *array = changed;
    const Error error = thrown_by([&] { ImageArrays(image.bytes, image.arrays, "image"); });
    EXPECT_EQ(error.source(), ErrorSource::input);
    EXPECT_THAT(error.what(), HasSubstr(reason));
  };
  const auto size = std::ssize(whole.bytes);
  const auto at = [](std::int64_t offset) { return [offset](StoredArray& a, StoredImage&) { a.offset = offset; }; };
  const auto long_as = [](std::int64_t bytes) { return [bytes](StoredArray& a, StoredImage&) { a.bytes = bytes; }; };
  const auto called = [](std::string name) { return [name](StoredArray& a, StoredImage&) { a.name = name; }; };
  const auto shaped = [](Shape shape) { return [shape](StoredArray& a, StoredImage&) { a.shape = shape; }; };

  for (const std::int64_t offset : {-1L, -kMost - 1, size - 23, size, size + 1, kMost - 8, kMost}) {
    refuses("/g/floats", at(offset), "not within the file");
  }
  for (const std::int64_t bytes : {-1L, -kMost - 1, size, kMost}) refuses("/g/floats", long_as(bytes), "not within");
  for (const std::int64_t bytes : {23, 25, 48}) refuses("/g/floats", long_as(bytes), "not those of the shape");
  refuses("/g/floats", long_as(0), "no bytes");
  refuses("/g/none", at(8), "no bytes");
  refuses("/g/none", shaped({0, 1 << 30}), "larger than the file");
  refuses("/g/floats", shaped({3}), "not those of the shape 3");
  refuses("/g/floats", shaped({std::int64_t{1} << 62}), "larger than the file");
  refuses(
      "/g/floats", [](StoredArray& a, StoredImage&) { a.type = StoredType::i64; }, "not those of the shape");
  refuses(
      "/g/floats", [](StoredArray& a, StoredImage&) { a.crc32c ^= 1; }, "checksum");
  refuses(
      "/g/floats", [](StoredArray& a, StoredImage& i) { i.bytes[static_cast<std::size_t>(a.offset)] ^= std::byte{1}; },
      "checksum");
  refuses("/text", shaped({1}), "not those of the shape");
  refuses(
      "/g/none",
      [](StoredArray& a, StoredImage&) {
        a.type = StoredType::text;
        a.shape = {};
      },
      "not those");
  const auto recounted = [](StoredArray& a, StoredImage& image) {
    a.crc32c =
        crc32c(std::span(image.bytes).subspan(static_cast<std::size_t>(a.offset), static_cast<std::size_t>(a.bytes)));
  };
  refuses(
      "/text",
      [&](StoredArray& a, StoredImage& i) {
        --a.bytes;
        recounted(a, i);
      },
      "does not end in a zero");
  refuses(
      "/text",
      [&](StoredArray& a, StoredImage& i) {
        i.bytes[static_cast<std::size_t>(a.offset)] = std::byte{0};
        recounted(a, i);
      },
      "does not end in a zero");
  for (const char* name : {"", "/", "text", "//text", "/a//b", "/a/", "/./b", "/a/..", "/."}) {
    refuses("/text", called(name), "no name");
  }
  refuses("/text", called("/" + std::string(2000, 'x')), "no name");
  refuses("/text", called(std::string("/a\0b", 4)), "'/a");
  refuses("/text", called("/int"), "two of this name");
  refuses(
      "/long",
      [&](StoredArray& a, StoredImage& i) {
        a.offset = std::ranges::find(i.arrays, "/g/floats", &StoredArray::name)->offset + 4;
        recounted(a, i);
      },
      "within another array");
}

}  // namespace
}  // namespace tutti
