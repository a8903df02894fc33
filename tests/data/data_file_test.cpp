#include "tutti/data/data_file.hpp"

#include "tutti/base/digest.hpp"
#include "tutti/base/error.hpp"
#include "tutti/data/image_recipe.hpp"
#include "tutti/storage/array_file.hpp"
#include "tutti/storage/atomic_file.hpp"

#include "data/written_images.hpp"
#include "support/reports.hpp"
#include "support/scratch_folder.hpp"
#include "support/thrown.hpp"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <iterator>
#include <string>
#include <string_view>
#include <vector>

namespace tutti {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::UnorderedElementsAreArray;
using testing_support::cifar_file;
using testing_support::Contents;
using testing_support::contents_of;
using testing_support::gradient;
using testing_support::open_named;
using testing_support::png_of;

class DataFile : public ::testing::Test {
 protected:
  std::string path() const { return folder_.file("set.h5"); }
  OwnedData open(std::size_t most_resident_bytes, double validation_ratio = 0) const {
    return open_data(
        {.train = path(), .validation_ratio = validation_ratio, .most_resident_bytes = most_resident_bytes});
  }
  // Of the fifth training image of 16 bytes.
  void damage_pixel() const {
    auto bytes = read_file_bytes(path());
    const auto pixels = contents_of(*open(0).pair.train).images;
    const auto raw = std::as_bytes(std::span(pixels));
    const auto found = std::search(bytes.begin(), bytes.end(), raw.begin(), raw.end());
    ASSERT_NE(found, bytes.end());
    *(found + 77) ^= std::byte{1};
    write_atomically(path(), bytes);
  }
  ScratchFolder folder_;
};

void expect_equal(const Dataset& one, const Dataset& other) {
  EXPECT_EQ(one.info().name, other.info().name);
  EXPECT_EQ(one.info().image, other.info().image);
  EXPECT_EQ(one.info().classes, other.info().classes);
  EXPECT_EQ(one.info().class_names, other.info().class_names);
  EXPECT_EQ(one.info().class_samples, other.info().class_samples);
  EXPECT_EQ(one.info().statistics, other.info().statistics);
  EXPECT_EQ(one.digest(), other.digest());
  EXPECT_EQ(contents_of(one).images, contents_of(other).images);
  EXPECT_EQ(contents_of(one).labels, contents_of(other).labels);
}

TEST_F(DataFile, HasTheContentOfItsSource) {
  folder_.write("cifar/data_batch_1.bin", cifar_file({4, 7, 1}));
  folder_.write("cifar/test_batch.bin", cifar_file({4, 1}, 60));
  for (const std::string& source :
       {std::string("glyphs"), std::string("synthetic:300x2x5x7:3"), folder_.file("cifar")}) {
    const OwnedData data = open_named(source);
    write_data_file(data.pair, path());
    const OwnedData resident = open(0);
    expect_equal(*resident.pair.train, *data.pair.train);
    expect_equal(*resident.pair.test, *data.pair.test);
    EXPECT_GT(resident.pair.train->resident_bytes(), 0u);
    const OwnedData streamed = open(1);
    expect_equal(*streamed.pair.train, *data.pair.train);
    expect_equal(*streamed.pair.test, *data.pair.test);
    EXPECT_EQ(streamed.pair.train->resident_bytes(), 0u);
  }
}

TEST_F(DataFile, HasTheImagesOfAFolderAndTheirStatistics) {
  for (const char* name : {"in/cat/1.png", "in/dog/1.png", "in/dog/2.png"}) {
    folder_.write(name, png_of(gradient(3, 6, 5, name[3] + name[7])));
  }
  const OwnedData folder = open_named(folder_.file("in"));
  write_data_file(folder.pair, path());
  const OwnedData data = open(0);
  EXPECT_EQ(contents_of(*data.pair.train).images, contents_of(*folder.pair.train).images);
  EXPECT_EQ(data.pair.train->info().class_names, (std::vector<std::string>{"cat", "dog"}));
  EXPECT_EQ(data.pair.train->info().statistics.mean.size(), 3u);
  EXPECT_EQ(data.pair.test, nullptr);

  folder_.write("in/dog/3.png", png_of(gradient(3, 7, 5)));
  EXPECT_THAT(thrown_by([&] { write_data_file(open_named(folder_.file("in")).pair, path()); }),
              reports(ErrorSource::usage, "images of in ", "give --image-size N"));
}

std::vector<std::string> names_of(const Dataset& set) {
  std::vector<std::string> names;
  for (std::int64_t sample = 0; sample < set.info().samples; ++sample) names.push_back(set.file_of(sample));
  return names;
}

TEST_F(DataFile, HasTheNamesOfTheFilesOfAFolder) {
  for (const char* name :
       {"train/cat/1.png", "train/cat/\xff.png", "train/dog/2.png", "train/dog/3.png", "test/dog/4.png"}) {
    folder_.write(std::string("in/") + name, png_of(gradient(1, 6, 5)));
  }
  write_data_file(open_named(folder_.file("in")).pair, path());
  for (const std::size_t most_resident_bytes : {std::size_t{0}, std::size_t{1}}) {
    const OwnedData data = open(most_resident_bytes);
    EXPECT_THAT(names_of(*data.pair.train), ElementsAre("cat/1.png", "cat/\\xff.png", "dog/2.png", "dog/3.png"));
    EXPECT_THAT(names_of(*data.pair.test), ElementsAre("dog/4.png"));
    const OwnedData split = open(most_resident_bytes, 0.5);
    auto names = names_of(*split.pair.train);
    std::ranges::copy(names_of(*split.pair.test), std::back_inserter(names));
    EXPECT_EQ(names_of(*split.pair.test).size(), 2u);
    EXPECT_THAT(names, UnorderedElementsAreArray(names_of(*data.pair.train)));
    const std::string copy = folder_.file("copy.h5");
    write_data_file(data.pair, copy);
    EXPECT_EQ(read_file_bytes(copy), read_file_bytes(path()));
  }
}

TEST_F(DataFile, FitsImagesToOneSize) {
  folder_.write("in/a/1.png", png_of({1, 14, 28, testing_support::Bytes(14 * 28, 77)}));
  folder_.write("in/a/2.png", png_of(gradient(1, 7, 7)));
  folder_.write("in/b/3.png", png_of({1, 3, 2, testing_support::Bytes(6, 200)}));
  // Columns 0 to 27; the whole short side and the center 14 columns are kept.
  testing_support::Picture wide{1, 14, 28, {}};
  for (int i = 0; i < 14 * 28; ++i)
    wide.pixels.push_back(static_cast<std::uint8_t>(i % 28 == 6 || i % 28 == 19 ? 99 : 1));
  folder_.write("in/b/4.png", png_of(wide));
  const OwnedData folder = open_named(folder_.file("in"));
  write_data_file(folder.pair, path(), {.image_size = 7});
  const OwnedData data = open(0);
  EXPECT_EQ(data.pair.train->info().image, (Shape{1, 7, 7}));
  const auto pixels = contents_of(*data.pair.train).images;
  EXPECT_EQ(std::ranges::count(pixels, 77), 49);
  EXPECT_EQ(std::ranges::count(pixels, 200), 49);
  EXPECT_TRUE(std::ranges::equal(std::span(pixels).subspan(49, 49), gradient(1, 7, 7).pixels));
  EXPECT_EQ(std::ranges::count(std::span(pixels).subspan(147, 49), 1), 35) << "of 7 columns, only those at the edges";
  EXPECT_EQ(data.pair.train->info().has_short_side, true);
  EXPECT_EQ(folder.pair.train->info().has_short_side, std::nullopt);
  EXPECT_TRUE(make_recipe({.normalize = "none"}, *data.pair.train).keeps_short_side);
  EXPECT_FALSE(make_recipe({.normalize = "none", .image_size = 6}, *data.pair.train).keeps_short_side);
}

TEST_F(DataFile, IsReadPieceByPieceInAnyOrder) {
  const OwnedData data = open_named("synthetic:200x1x4x4:5");
  write_data_file(data.pair, path());
  const OwnedData streamed = open(100);
  const std::vector<std::int64_t> samples{5, 6, 7, 3, 3, 4, 199, 0};
  SampleBatch expected;
  SampleBatch batch;
  for (int again = 0; again < 2; ++again) {
    data.pair.train->read(samples, expected);
    streamed.pair.train->read(samples, batch);
    ASSERT_EQ(batch.images.size(), samples.size());
    EXPECT_EQ(batch.labels, expected.labels);
    for (std::size_t i = 0; i < samples.size(); ++i) {
      EXPECT_TRUE(std::equal(batch.images[i].pixels, batch.images[i].pixels + 16, expected.images[i].pixels)) << i;
    }
  }
  EXPECT_EQ(thrown_by([&] { streamed.pair.train->read(std::array<std::int64_t, 1>{200}, batch); }).source(),
            ErrorSource::internal);
}

TEST_F(DataFile, CanHoldOutSamplesForValidation) {
  write_data_file(open_named("synthetic:200x1x4x4:5").pair, path());
  const OwnedData resident = open(0, 0.25);
  const OwnedData streamed = open(1, 0.25);
  EXPECT_EQ(streamed.pair.test->info().samples, 50);
  EXPECT_EQ(contents_of(*streamed.pair.test).images, contents_of(*resident.pair.test).images);
  EXPECT_EQ(contents_of(*streamed.pair.train).labels, contents_of(*resident.pair.train).labels);
  for (const OwnedData* data : {&resident, &streamed}) {
    EXPECT_NE(data->pair.train->digest(), data->pair.test->digest());
    EXPECT_NE(data->pair.train->digest(), open(1).pair.train->digest());
    EXPECT_NE(data->pair.train->digest(), open(1, 0.2).pair.train->digest());
  }
  EXPECT_EQ(streamed.pair.train->digest(), resident.pair.train->digest());
  EXPECT_EQ(streamed.pair.test->digest(), resident.pair.test->digest());
  EXPECT_THAT(resident.pair.notes, ElementsAre(fmt::format("--data {} has a test set, which --validation-ratio 0.25 "
                                                           "replaces: leave that out to keep it",
                                                           path())));
  EXPECT_THAT(open(0).pair.notes, IsEmpty());
}

TEST_F(DataFile, IsRefusedByNameWhenItWasReplacedAfterItWasListed) {
  write_data_file(open_named("synthetic:200x1x4x4:5").pair, path());
  const OwnedData listed = open(1);
  write_data_file(open_named("synthetic:200x1x4x4:4").pair, path());
  EXPECT_THAT(thrown_by([&] { open_loaded(listed.block); }),
              reports(ErrorSource::input, "set.h5' has changed ", "start again"));
}

TEST_F(DataFile, ServesAsATestSet) {
  write_data_file(open_named("synthetic:200x1x4x4:5").pair, path());
  const OwnedData data = open_named("synthetic:100x1x4x4:5", path());
  EXPECT_EQ(data.pair.test->info().samples, 20);
}

TEST_F(DataFile, IsRefusedByNameWhenItsPixelsChanged) {
  write_data_file(open_named("synthetic:200x1x4x4:5").pair, path());
  damage_pixel();
  EXPECT_THAT(thrown_by([&] { open(0); }),
              reports(ErrorSource::input, "set.h5' cannot be read", "/train have the digest ", "data convert"));
}

// A file of an early version: without checksums, and with constant statistics for data in CIFAR format. `names` were
// added later.
void write_early_file(const std::string& path, const Dataset& set, std::string_view names = {}) {
  const Contents contents = contents_of(set);
  const Shape samples{set.info().samples};
  RowFileWriter file(path);
  file.add_text("/format", "tutti data set 1");
  file.add_text("/name", set.info().name);
  file.add_text("/class_names", "");
  file.add("/classes", Shape{1}, std::array<std::int32_t, 1>{set.info().classes});
  file.begin_rows("/train/images", set.info().image.batch_of(set.info().samples));
  file.append_rows(contents.images);
  file.add("/train/labels", samples, std::span<const std::int32_t>(contents.labels));
  if (!names.empty())
    file.add("/train/names", Shape{std::ssize(names)}, std::vector<std::uint8_t>(names.begin(), names.end()));
  file.add_text("/train/digest", digest_text(set.digest()));
  file.add("/mean", Shape{1}, std::array<double, 1>{0.4914});
  file.add("/deviation", Shape{1}, std::array<double, 1>{0.2023});
  file.commit();
}

TEST_F(DataFile, OfAnEarlyVersionIsVerifiedAsAWholeOnRequest) {
  const OwnedData source = open_named("synthetic:200x1x4x4:5");
  write_early_file(path(), *source.pair.train);
  EXPECT_EQ(open(0).pair.train->info().statistics, source.pair.train->info().statistics);
  EXPECT_THAT(open(0).pair.notes, ::testing::IsEmpty());
  EXPECT_THAT(open(1).pair.notes, ::testing::ElementsAre(mentions("set.h5' ", "has no checksums", "data convert")));
  const DataRequest request{
      .train = path(), .data_file_check = DataFileCheck::without_checksums, .most_resident_bytes = 1};
  EXPECT_EQ(contents_of(*open_data(request).pair.train).images, contents_of(*source.pair.train).images);
  damage_pixel();
  EXPECT_EQ(open(1).pair.train->info().samples, 200);
  EXPECT_THAT(thrown_by([&] { open_data(request); }),
              reports(ErrorSource::input, "set.h5'", "/train have the digest "));
}

TEST_F(DataFile, IsRefusedUnlessItsNamesAreOnePerSample) {
  using namespace std::string_view_literals;
  const OwnedData source = open_named("synthetic:3x1x4x4:2");
  EXPECT_THAT(names_of(*source.pair.train), ElementsAre("", "", ""));
  write_early_file(path(), *source.pair.train, "a\0\0b\0"sv);
  EXPECT_THAT(names_of(*open(0).pair.train), ElementsAre("a", "", "b"));
  for (const std::string_view names : {"a\0b\0"sv, "a\0b\0c"sv, "a\0b\0c\0d\0"sv, "\0\0\0\0\0\0"sv, "abc"sv}) {
    write_early_file(path(), *source.pair.train, names);
    EXPECT_THAT(thrown_by([&] { open(0); }),
                reports(ErrorSource::input, "set.h5' cannot be read", "/train/names does not have 3 names"));
  }
  write_early_file(path(), *source.pair.train, "a\0b\0\xff\0"sv);
  EXPECT_THAT(thrown_by([&] { open(0); }), reports(ErrorSource::input, "set.h5'", "sample 2 in /train/names", "UTF-8"));
}

TEST_F(DataFile, IsVerifiedRowByRowWhereItStaysOnTheDisk) {
  write_data_file(open_named("synthetic:200x1x4x4:5").pair, path());
  damage_pixel();
  const OwnedData data = open(1, 0.25);
  int damaged = 0;
  SampleBatch batch;
  for (const Dataset* set : {data.pair.train.get(), data.pair.test.get()}) {
    for (std::int64_t sample = 0; sample < set->info().samples; ++sample) {
      try {
        set->read(std::array<std::int64_t, 1>{sample}, batch);
      } catch (const Error& error) {
        ++damaged;
        EXPECT_THAT(error, reports(ErrorSource::input, "set.h5' is damaged", "row 4 of /train/images ", "restore"));
      }
    }
  }
  EXPECT_EQ(damaged, 1);
}

TEST_F(DataFile, IsRefusedByNameWhenItIsAnotherFileOrDamaged) {
  write_data_file(open_named("synthetic:20x1x4x4:5").pair, path());
  auto bytes = read_file_bytes(path());
  bytes[100] ^= std::byte{1};
  write_atomically(path(), bytes);
  EXPECT_THAT(thrown_by([&] { open(0); }), reports(ErrorSource::input, "set.h5' is damaged"));
  MemoryFileWriter other;
  other.add_text("/format", "something else");
  std::vector<std::byte> unsealed = other.finish();
  unsealed.pop_back();
  write_atomically(path(), unsealed);
  EXPECT_THAT(thrown_by([&] { open(0); }), reports(ErrorSource::input, "set.h5' has no seal"));
  RowFileWriter sealed(path());
  sealed.add_text("/format", "something else");
  sealed.commit();
  EXPECT_THAT(thrown_by([&] { open(0); }), reports(ErrorSource::input, "set.h5'", "is not 'tutti data set 1'"));
}

}  // namespace
}  // namespace tutti
