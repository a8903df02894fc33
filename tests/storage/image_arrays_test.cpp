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
  EXPECT_THAT(refusal([&] { arrays.read<float>("/g/floats", {6}, six); }), HasSubstr("2x3 instead of 6"));
  EXPECT_THAT(refusal([&] { arrays.read("/g/floats", {2, 3}, std::span(six).first(5)); }), HasSubstr("room for 5"));
  EXPECT_THAT(refusal([&] { arrays.read<std::int32_t>("/g/floats", {2, 3}, numbers); }), HasSubstr("another type"));
  EXPECT_THAT(refusal([&] { arrays.read<float>("/g/floaty", {6}, six); }), HasSubstr("no array of this name"));
  EXPECT_THAT(refusal([&] { arrays.read_text("/int"); }), HasSubstr("no text"));
  EXPECT_THAT(refusal([&] { static_cast<void>(arrays.shape("/g")); }), HasSubstr("no array of this name"));
}

using Change = std::function<void(StoredArray&, StoredImage&)>;

void expect_refusal(const std::string& name, const Change& change, const std::string& reason) {
  StoredImage image = sample_image();
  const auto array = std::ranges::find(image.arrays, name, &StoredArray::name);
  ASSERT_NE(array, image.arrays.end());
  StoredArray changed = *array;
  change(changed, image);
  *array = changed;
  const Error error = thrown_by([&] { ImageArrays(image.bytes, image.arrays, "image"); });
  EXPECT_EQ(error.source(), ErrorSource::input);
  EXPECT_THAT(error.what(), HasSubstr(reason));
}

Change lies_at(std::int64_t offset) {
  return [=](StoredArray& array, StoredImage&) { array.offset = offset; };
}
Change has_bytes(std::int64_t bytes) {
  return [=](StoredArray& array, StoredImage&) { array.bytes = bytes; };
}
Change has_shape(const Shape& shape) {
  return [=](StoredArray& array, StoredImage&) { array.shape = shape; };
}
Change is_called(const std::string& name) {
  return [=](StoredArray& array, StoredImage&) { array.name = name; };
}
// Its checksum is right again afterwards.
Change with_its_checksum(const Change& change) {
  return [=](StoredArray& array, StoredImage& image) {
    change(array, image);
    array.crc32c = crc32c(
        std::span(image.bytes).subspan(static_cast<std::size_t>(array.offset), static_cast<std::size_t>(array.bytes)));
  };
}
std::byte& first_byte(const StoredArray& array, StoredImage& image) {
  return image.bytes[static_cast<std::size_t>(array.offset)];
}

TEST(ImageArrays, RefuseAPlaceThatIsNotInTheImageOrAnotherArrays) {
  const std::int64_t size = std::ssize(sample_image().bytes);
  for (const std::int64_t offset : {-1L, -kMost - 1, size - 23, size, size + 1, kMost - 8, kMost}) {
    expect_refusal("/g/floats", lies_at(offset), "not within the file");
  }
  for (const std::int64_t bytes : {-1L, -kMost - 1, size, kMost}) {
    expect_refusal("/g/floats", has_bytes(bytes), "not within");
  }
  expect_refusal("/g/none", lies_at(8), "no bytes");
  expect_refusal("/g/floats", has_bytes(0), "no bytes");
  expect_refusal("/long", with_its_checksum([](StoredArray& array, StoredImage& image) {
                   array.offset = std::ranges::find(image.arrays, "/g/floats", &StoredArray::name)->offset + 4;
                 }),
                 "within another array");
}

TEST(ImageArrays, RefuseShapesAndTypesOfOtherSizes) {
  for (const std::int64_t bytes : {23, 25, 48}) {
    expect_refusal("/g/floats", has_bytes(bytes), "not those of the shape");
  }
  expect_refusal("/g/none", has_shape({0, 1 << 30}), "larger than the file");
  expect_refusal("/g/floats", has_shape({std::int64_t{1} << 62}), "larger than the file");
  expect_refusal("/g/floats", has_shape({3}), "not those of the shape 3");
  expect_refusal("/text", has_shape({1}), "not those of the shape");
  const auto typed = [](StoredType type) { return [=](StoredArray& array, StoredImage&) { array.type = type; }; };
  expect_refusal("/g/floats", typed(StoredType::i64), "not those of the shape");
  expect_refusal("/g/none", typed(StoredType::text), "not those of the shape");
}

TEST(ImageArrays, RefuseOtherBytesThanWereAdded) {
  expect_refusal(
      "/g/floats", [](StoredArray& array, StoredImage&) { array.crc32c ^= 1; }, "checksum");
  const Change change = [](StoredArray& array, StoredImage& image) { first_byte(array, image) ^= std::byte{1}; };
  expect_refusal("/g/floats", change, "checksum");
  const Change cut = [](StoredArray& array, StoredImage& image) { first_byte(array, image) = std::byte{0}; };
  expect_refusal("/text", with_its_checksum(cut), "does not end in a zero");
  expect_refusal("/text", with_its_checksum(has_bytes(5)), "does not end in a zero");
}

TEST(ImageArrays, RefuseNamesThatHdf5WouldNotHaveOrHasTwice) {
  for (const char* name : {"", "/", "text", "//text", "/a//b", "/a/", "/./b", "/a/..", "/."}) {
    expect_refusal("/text", is_called(name), "no name");
  }
  expect_refusal("/text", is_called("/" + std::string(2000, 'x')), "no name");
  expect_refusal("/text", is_called(std::string("/a\0b", 4)), "'/a");
  expect_refusal("/text", is_called("/int"), "two of this name");
}

}  // namespace
}  // namespace tutti
