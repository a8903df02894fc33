#include "tutti/storage/array_file.hpp"

#include "tutti/storage/atomic_file.hpp"

#include "support/reports.hpp"
#include "support/scratch_folder.hpp"
#include "support/thrown.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <bit>
#include <filesystem>
#include <limits>
#include <numeric>

namespace tutti {
namespace {

using testing::ElementsAre;

template <class T>
std::span<const T> view(const std::vector<T>& values) {
  return values;
}

template <class T>
std::vector<T> read_back(const ArrayFile& file, const std::string& name, const Shape& shape) {
  std::vector<T> values(static_cast<std::size_t>(shape.elements()));
  file.read(name, shape, std::span<T>(values));
  return values;
}

template <class T>
std::vector<T> extremes() {
  return {std::numeric_limits<T>::lowest(), T{0}, T{1}, std::numeric_limits<T>::max()};
}

// A small file with one array, one text and one group.
std::string small_file(const ScratchFolder& folder) {
  MemoryFileWriter writer;
  writer.add("/group/array", {2, 3}, view(std::vector<float>{1, 2, 3, 4, 5, 6}));
  writer.add_text("/text", "words");
  write_atomically(folder.file("small.h5"), writer.finish());
  return folder.file("small.h5");
}

TEST(MemoryFileWriter, GivesTheSameBytesInTheMemoryOfAnother) {
  const auto bytes_in = [](std::vector<std::byte> buffer) {
    MemoryFileWriter writer(std::move(buffer));
    writer.add("/group/array", {3}, view(std::vector<float>{1, 2, 3}));
    writer.add_text("/text", "words");
    return writer.finish();
  };
  const std::vector<std::byte> fresh = bytes_in({});
  EXPECT_EQ(bytes_in(std::vector<std::byte>(100, std::byte{0xff})), fresh);
  EXPECT_EQ(bytes_in(std::vector<std::byte>(std::size_t{4} << 20, std::byte{0xff})), fresh);
}

template <class T>
class ArrayFileOf : public testing::Test {};
using Elements = testing::Types<float, double, std::uint8_t, std::int32_t, std::int64_t>;
TYPED_TEST_SUITE(ArrayFileOf, Elements);

TYPED_TEST(ArrayFileOf, EveryTypeKeepsItsExtremesInEveryShape) {
  const ScratchFolder folder;
  const auto values = extremes<TypeParam>();
  std::vector<TypeParam> many(2 * 3 * 4 * 5);
  std::iota(many.begin(), many.end(), TypeParam{1});
  MemoryFileWriter writer;
  writer.add("/a/four", {4}, view(values));
  writer.add("/a/scalar", {}, view(values).subspan(3));
  writer.add("/a/empty", {3, 0, 2}, view(values).first(0));
  writer.add("/a/deep/down/below", {2, 3, 4, 5}, view(many));
  const std::vector<std::byte> stored = writer.finish();
  write_atomically(folder.file("f.h5"), stored);

  const ArrayFile on_disk(folder.file("f.h5"));
  const ArrayFile in_memory(stored, "a file");
  for (const ArrayFile* file : {&on_disk, &in_memory}) {
    EXPECT_EQ(read_back<TypeParam>(*file, "/a/four", {4}), values);
    EXPECT_EQ(read_back<TypeParam>(*file, "/a/scalar", {}).front(), values[3]);
    EXPECT_TRUE(read_back<TypeParam>(*file, "/a/empty", {3, 0, 2}).empty());
    EXPECT_EQ(read_back<TypeParam>(*file, "/a/deep/down/below", {2, 3, 4, 5}), many);
    EXPECT_EQ(file->shape("/a/empty"), (Shape{3, 0, 2}));
    EXPECT_EQ(file->shape("/a/scalar"), Shape{});
    EXPECT_EQ(file->bytes(), std::ssize(stored));
  }
}

TYPED_TEST(ArrayFileOf, EveryTypeIsRefusedAsAnyOther) {
  const ScratchFolder folder;
  MemoryFileWriter writer;
  writer.add("/array", {4}, view(extremes<TypeParam>()));
  write_atomically(folder.file("f.h5"), writer.finish());
  const ArrayFile file(folder.file("f.h5"));
  const auto refuses = [&]<class T>(T) {
    if constexpr (!std::is_same_v<T, TypeParam>) {
      EXPECT_EQ(thrown_by([&] { read_back<T>(file, "/array", {4}); }).source(), ErrorSource::input);
    }
  };
  refuses(float{});
  refuses(double{});
  refuses(std::uint8_t{});
  refuses(std::int32_t{});
  refuses(std::int64_t{});
}

TEST(ArrayFile, KeepsEveryBitOfUnusualFloats) {
  const ScratchFolder folder;
  const std::vector<std::uint32_t> bits{0x80000000, 0x00000001, 0x807FFFFF, 0x7F800000,
                                        0xFF800000, 0x7FC12345, 0xFFC00001};
  std::vector<float> values;
  for (const std::uint32_t b : bits) values.push_back(std::bit_cast<float>(b));
  MemoryFileWriter writer;
  writer.add("/odd", {7}, view(values));
  write_atomically(folder.file("f.h5"), writer.finish());
  const auto read = read_back<float>(ArrayFile(folder.file("f.h5")), "/odd", {7});
  for (std::size_t i = 0; i < bits.size(); ++i) EXPECT_EQ(std::bit_cast<std::uint32_t>(read[i]), bits[i]);
}

TEST(ArrayFile, KeepsTextsOfAnyLength) {
  const ScratchFolder folder;
  const std::string longest(200000, 'x');
  MemoryFileWriter writer;
  writer.add_text("/empty", "");
  writer.add_text("/lines", "[model]\nname = \"lenet\"  # größer\n ");
  writer.add_text("/long", longest);
  write_atomically(folder.file("f.h5"), writer.finish());
  const ArrayFile file(folder.file("f.h5"));
  EXPECT_EQ(file.read_text("/empty"), "");
  EXPECT_EQ(file.read_text("/lines"), "[model]\nname = \"lenet\"  # größer\n ");
  EXPECT_EQ(file.read_text("/long"), longest);
}

TEST(ArrayFile, ListsArraysBelowAGroupInOrderOfTheirNames) {
  const ScratchFolder folder;
  MemoryFileWriter writer;
  for (const char* name : {"/b/z", "/b/a/weight", "/b/a/bias", "/c", "/b2"}) {
    writer.add(name, {}, view(std::vector<float>{1}));
  }
  write_atomically(folder.file("f.h5"), writer.finish());
  const ArrayFile file(folder.file("f.h5"));
  EXPECT_THAT(file.names("/b"), ElementsAre("/b/a/bias", "/b/a/weight", "/b/z"));
  EXPECT_THAT(file.names("/"), ElementsAre("/b/a/bias", "/b/a/weight", "/b/z", "/b2", "/c"));
  EXPECT_THAT(file.names("/nowhere"), ElementsAre());
  EXPECT_EQ(thrown_by([&] { file.names("/c"); }).source(), ErrorSource::input);
}

TEST(ArrayFile, ContainsArraysButNoGroupsAndNothingBelowAnArray) {
  const ScratchFolder folder;
  const ArrayFile file(small_file(folder));
  EXPECT_TRUE(file.contains("/group/array"));
  EXPECT_TRUE(file.contains("/text"));
  EXPECT_FALSE(file.contains("/group"));
  EXPECT_FALSE(file.contains("/none"));
  EXPECT_FALSE(file.contains("/no/such/path"));
  EXPECT_FALSE(file.contains("/group/array/below"));
}

TEST(ArrayFile, NamesFileAndArrayAndWhatIsWrong) {
  const ScratchFolder folder;
  const ArrayFile file(small_file(folder));
  const auto words = [&](auto action) {
    const Error error = thrown_by(action);
    EXPECT_THAT(error, reports(ErrorSource::input, folder.file("small.h5")));
    return std::string(error.what());
  };
  EXPECT_THAT(words([&] { read_back<float>(file, "/group/none", {1}); }),
              mentions("array '/group/none': there is no array of this name"));
  EXPECT_THAT(words([&] { read_back<float>(file, "/group", {1}); }), mentions("a group, not an array"));
  EXPECT_THAT(words([&] { read_back<float>(file, "/group/array", {3, 2}); }), mentions("is 2x3 instead of 3x2"));
  EXPECT_THAT(words([&] { read_back<float>(file, "/group/array", {6}); }), mentions("is 2x3 instead of 6"));
  EXPECT_THAT(words([&] { read_back<double>(file, "/group/array", {2, 3}); }), mentions("not of type f64"));
  EXPECT_THAT(words([&] { read_back<std::uint8_t>(file, "/text", {}); }), mentions("not of type u8"));
  EXPECT_THAT(words([&] { file.read_text("/group/array"); }), mentions("it is not a string"));
  EXPECT_THAT(words([&] { file.shape("/none"); }), mentions("'/none'"));
}

TEST(ArrayFile, ReportsAMissingFileAndOneThatIsNotHdf5) {
  const ScratchFolder folder;
  EXPECT_THAT(thrown_by([&] { ArrayFile(folder.file("none.h5")); }),
              reports(ErrorSource::io, "No such file or directory"));

  EXPECT_EQ(thrown_by([&] { ArrayFile(folder.path()); }).source(), ErrorSource::input);

  write_atomically(folder.file("text.h5"), std::as_bytes(std::span("not at all an HDF5 file")));
  EXPECT_THAT(thrown_by([&] { ArrayFile(folder.file("text.h5")); }),
              reports(ErrorSource::input, folder.file("text.h5")));
}

TEST(ArrayFile, RefusesAFileCutShortAnywhere) {
  const ScratchFolder folder;
  const auto whole = read_file_bytes(small_file(folder));
  const std::string path = folder.file("cut.h5");
  const std::size_t before_seal = whole.size() - 48;  // one run of floats
  for (std::size_t length = 0; length < before_seal; length += length < 128 ? 1 : 97) {
    write_atomically(path, std::span(whole).first(length));
    EXPECT_EQ(thrown_by([&] { ArrayFile{path}; }).source(), ErrorSource::input) << length;
  }
}

TEST(ArrayFile, OpensAFileThatCannotBeWritten) {
  const ScratchFolder folder;
  const std::string path = small_file(folder);
  std::filesystem::permissions(path, std::filesystem::perms::owner_read);
  const ArrayFile one(path);
  const ArrayFile two(path);
  EXPECT_EQ(one.read_text("/text"), two.read_text("/text"));
}

TEST(MemoryFileWriter, EqualContentMakesEqualBytesWhateverTheTimeAndTheMemory) {
  const auto bytes = [] {
    MemoryFileWriter writer;
    writer.add("/a/b", {3}, view(std::vector<float>{1, 2, 3}));
    writer.add_text("/t", "text");
    return writer.finish();
  };
  const auto first = bytes();
  { const std::vector<std::byte> dirty(1 << 20, std::byte{0xA5}); }
  timespec pause{.tv_sec = 1, .tv_nsec = 100'000'000};
  ::nanosleep(&pause, nullptr);
  EXPECT_EQ(bytes(), first);
}

TEST(MemoryFileWriter, MayBeBuiltConcurrently) {
  const ScratchFolder folder;
  MemoryFileWriter one;
  MemoryFileWriter two;
  one.add_text("/which", "one");
  two.add_text("/which", "two");
  write_atomically(folder.file("1.h5"), one.finish());
  write_atomically(folder.file("2.h5"), two.finish());
  EXPECT_EQ(ArrayFile(folder.file("1.h5")).read_text("/which"), "one");
  EXPECT_EQ(ArrayFile(folder.file("2.h5")).read_text("/which"), "two");
}

TEST(MemoryFileWriter, RefusesNamesThatMeanAnotherArray) {
  MemoryFileWriter writer;
  const std::vector<float> one{1};
  for (const char* name : {"", "a", "/", "//a", "/a/", "/a//b", "/./a", "/a/..", "/a/."}) {
    EXPECT_EQ(thrown_by([&] { writer.add(name, {}, view(one)); }).source(), ErrorSource::internal) << name;
  }
  writer.add("/a.b/..c", {}, view(one));
  EXPECT_EQ(thrown_by([&] { writer.add("/a.b/..c", {}, view(one)); }).source(), ErrorSource::hdf5);
}

TEST(MemoryFileWriter, RefusesValuesThatDoNotFillTheShapeAndLateAdditions) {
  MemoryFileWriter writer;
  const std::vector<float> three{1, 2, 3};
  EXPECT_EQ(thrown_by([&] { writer.add("/a", {2}, view(three)); }).source(), ErrorSource::internal);
  EXPECT_EQ(thrown_by([&] { writer.add_text("/t", std::string("a\0b", 3)); }).source(), ErrorSource::internal);
  writer.finish();
  EXPECT_EQ(thrown_by([&] { writer.add("/a", {3}, view(three)); }).source(), ErrorSource::internal);
  EXPECT_EQ(thrown_by([&] { writer.finish(); }).source(), ErrorSource::internal);
}

}  // namespace
}  // namespace tutti
