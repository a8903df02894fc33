// Processing in load_data after a data set is read: held-out samples, statistics, digests, blocks.

#include "tutti/base/error.hpp"
#include "tutti/data/open_data.hpp"

#include "data/written_images.hpp"
#include "support/reports.hpp"
#include "support/scratch_folder.hpp"
#include "support/thrown.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <set>
#include <string>
#include <vector>

namespace tutti {
namespace {

using testing_support::cifar_file;
using testing_support::Contents;
using testing_support::contents_of;
using testing_support::idx_file;
using testing_support::idx_labels;
using testing_support::open_named;

// `count` images of one pixel, whose value and label are the sample's number.
void write_numbered(const ScratchFolder& folder, std::uint8_t count) {
  folder.write("train-images-idx3-ubyte", idx_file({0x803, count, 1, 1}, count));
  testing_support::Bytes labels(count);
  std::iota(labels.begin(), labels.end(), std::uint8_t{0});
  folder.write("train-labels-idx1-ubyte", idx_labels(labels));
}

OwnedData hold_out(const std::string& train, double ratio, std::uint64_t seed = 0) {
  return open_data({.train = train, .validation_ratio = ratio, .seed = seed});
}

TEST(HeldOut, SamplesAreAShareOfTheTrainingSetInOrder) {
  const ScratchFolder folder;
  write_numbered(folder, 50);
  const OwnedData data = hold_out(folder.path(), 0.3);
  const Contents train = contents_of(*data.pair.train);
  const Contents test = contents_of(*data.pair.test);
  EXPECT_EQ(train.labels.size(), 35u);
  EXPECT_EQ(test.labels.size(), 15u);
  EXPECT_TRUE(std::ranges::is_sorted(train.labels));
  EXPECT_TRUE(std::ranges::is_sorted(test.labels));
  std::vector<std::int32_t> all = train.labels;
  all.insert(all.end(), test.labels.begin(), test.labels.end());
  std::ranges::sort(all);
  for (std::int32_t i = 0; i < 50; ++i) EXPECT_EQ(all[static_cast<std::size_t>(i)], i);
  EXPECT_TRUE(std::ranges::equal(train.images, train.labels));
  EXPECT_TRUE(std::ranges::equal(test.images, test.labels));
  EXPECT_EQ(data.pair.test->info().classes, 50);
}

TEST(HeldOut, SamplesDependOnTheSeedAlone) {
  const ScratchFolder folder;
  write_numbered(folder, 50);
  const auto labels = [&](std::uint64_t seed) {
    return contents_of(*hold_out(folder.path(), 0.3, seed).pair.test).labels;
  };
  EXPECT_EQ(labels(1), labels(1));
  EXPECT_NE(labels(1), labels(2));
}

std::vector<std::int64_t> classes_held_out(const ScratchFolder& folder, double ratio, std::uint64_t seed, Split split) {
  return open_data({.train = folder.path(), .validation_ratio = ratio, .split = split, .seed = seed})
      .pair.test->info()
      .class_samples;
}

// 60, 25, 10, 4 and 1 images of five classes, in any order.
TEST(HeldOut, SamplesAreTheSameShareOfEveryClass) {
  const ScratchFolder folder;
  folder.write("train-images-idx3-ubyte", idx_file({0x803, 100, 1, 1}, 100));
  testing_support::Bytes labels(100);
  for (std::size_t i = 0; i < 100; ++i) {
    const std::size_t place = i * 37 % 100;
    labels[i] = static_cast<std::uint8_t>(place < 60 ? 0 : place < 85 ? 1 : place < 95 ? 2 : place < 99 ? 3 : 4);
  }
  folder.write("train-labels-idx1-ubyte", idx_labels(labels));
  const std::vector<std::int64_t> fifth{12, 5, 2, 1, 0};
  bool differs = false;
  for (std::uint64_t seed = 0; seed < 8; ++seed) {
    EXPECT_EQ(classes_held_out(folder, 0.2, seed, Split::stratified), fifth);
    differs = differs || classes_held_out(folder, 0.2, seed, Split::random) != fifth;
    EXPECT_EQ(classes_held_out(folder, 0.9, seed, Split::stratified)[4], 0);  // its only sample is trained on
  }
  EXPECT_TRUE(differs);
}

TEST(HeldOut, IsAtLeastOneSampleAndNeverAll) {
  const ScratchFolder folder;
  write_numbered(folder, 50);
  EXPECT_EQ(hold_out(folder.path(), 0.001).pair.test->info().samples, 1);
  EXPECT_THAT(thrown_by([&] { hold_out(folder.path(), 0.999); }),
              reports(ErrorSource::usage, "--validation-ratio 0.999 ", "50 of 50 samples", "give a smaller one"));
  for (const double wrong : {1.0, -0.1, std::nan("")}) {
    EXPECT_EQ(thrown_by([&] { hold_out(folder.path(), wrong); }).source(), ErrorSource::usage);
  }
}

// Images of 9 patients of two classes, named by their class, patient and number.
class Groups : public ::testing::Test {
 protected:
  Groups() {
    for (int patient = 0; patient < 9; ++patient) {
      for (int i = 0; i <= patient % 4; ++i) {
        const std::string name = fmt::format("{}/p{}-{}", patient % 3 == 0 ? "ill" : "well", patient, i);
        folder_.write("in/" + name + ".png", testing_support::png_of(testing_support::gradient(1, 4, 4, patient)));
        rows_.push_back(
            fmt::format("{},x,P{}\n", i % 2 == 0 ? name + ".png" : name.substr(name.find('/') + 1), patient));
      }
    }
  }
  std::string path(const std::string& name) const { return folder_.file(name); }
  OwnedData hold_out(const std::string& groups, double ratio = 0.3, std::uint64_t seed = 0) const {
    return open_data({.train = path("in"), .validation_ratio = ratio, .validation_groups = path(groups), .seed = seed});
  }
  void write(const std::string& name, const std::vector<std::string>& rows) const {
    const std::string text = fmt::format("{}", fmt::join(rows, ""));
    folder_.write(name, testing_support::Bytes(text.begin(), text.end()));
  }
  std::vector<std::string> rows_with_header() const {
    std::vector<std::string> rows{"image,note,patient\n", "elsewhere.png,x,P0\n"};
    rows.insert(rows.end(), rows_.begin(), rows_.end());
    return rows;
  }
  static std::set<char> patients_of(const Dataset& data) {
    std::set<char> patients;
    for (std::int64_t i = 0; i < data.info().samples; ++i)
      patients.insert(data.name_of(i).at(data.name_of(i).find("/p") + 2));
    return patients;
  }

  ScratchFolder folder_;
  std::vector<std::string> rows_;
};

TEST_F(Groups, StayTogetherNearTheRatioOfEveryClass) {
  write("patients.csv", rows_with_header());
  std::set<std::set<char>> choices;
  for (std::uint64_t seed = 0; seed < 5; ++seed) {
    const OwnedData data = hold_out("patients.csv:patient", 0.3, seed);
    const auto left = patients_of(*data.pair.train);
    const auto held = patients_of(*data.pair.test);
    EXPECT_EQ(left.size() + held.size(), 9u) << "no patient is on both sides";
    for (const char patient : held) EXPECT_EQ(left.count(patient), 0u);
    EXPECT_NEAR(static_cast<double>(data.pair.test->info().samples), 0.3 * static_cast<double>(rows_.size()), 4)
        << "the largest group";
    EXPECT_EQ(data.pair.test->info().class_samples.size(), 2u);
    for (const std::int64_t samples : data.pair.test->info().class_samples) EXPECT_GT(samples, 0);
    choices.insert(held);
    // The same from the file of the same images, and recognized in the whole set.
    DataRequest request{.train = path("in")};
    const OwnedData whole = open_data(request);
    request.validation_ratio = 0.3;
    request.seed = seed;
    request.validation_groups = path("patients.csv:patient");
    EXPECT_TRUE(matches_after_hold_out(data.pair.train->digest(), *whole.pair.train, request));
    request.validation_groups = path("missing.csv");
    EXPECT_FALSE(matches_after_hold_out(data.pair.train->digest(), *whole.pair.train, request));
  }
  EXPECT_GT(choices.size(), 1u) << "the seed decides between groups of one size";
}

TEST_F(Groups, AreOnBothSidesAtAnyRatio) {
  write("patients.csv", rows_with_header());
  for (const double ratio : {0.001, 0.5, 0.95}) {
    const OwnedData data = hold_out("patients.csv:patient", ratio);
    EXPECT_GT(data.pair.train->info().samples, 0) << ratio;
    EXPECT_GT(data.pair.test->info().samples, 0) << ratio;
  }
}

TEST_F(Groups, AreRefusedByLineOrImageIfTheyAreNotClear) {
  const auto problem = [&](const std::vector<std::string>& rows, const std::string& named = "t.csv") {
    write("t.csv", rows);
    const Error error = thrown_by([&] { hold_out(named); });
    EXPECT_EQ(error.source(), ErrorSource::input);
    return std::string(error.what());
  };
  auto rows = rows_with_header();
  EXPECT_THAT(problem(rows, "t.csv:doctor"), mentions("t.csv:1: there is no column 'doctor'", "image, note, patient"));
  rows.push_back("well/p1-0.png,x,P7\n");
  EXPECT_THAT(problem(rows, "t.csv:patient"), mentions("'well/p1-0.png' has the group 'P1' already"));
  EXPECT_THAT(problem({"image,group\n", "well/p1-0.png,1\n"}), mentions("t.csv lists no group of 'ill/p0-0.png'"));
  EXPECT_THAT(problem({"well/p1-0.png\n"}), mentions("t.csv:1: 1 fields "));
  EXPECT_THAT(problem({"well/p1-0.png,\n"}), mentions("t.csv:1: 'well/p1-0.png' has no group"));
  folder_.write("in/ill/p1-0.png", testing_support::png_of(testing_support::gradient(1, 4, 4)));
  rows = rows_with_header();
  std::ranges::replace(rows, std::string("well/p1-0.png,x,P1\n"), std::string("p1-0,x,P1\n"));
  EXPECT_THAT(problem(rows, "t.csv:patient"),
              mentions("'p1-0' ", "ill/p1-0.png and of well/p1-0.png", "give the path"));
  const DataRequest unnamed{
      .train = "synthetic:20x1x4x4:2", .validation_ratio = 0.2, .validation_groups = path("t.csv")};
  EXPECT_THAT(thrown_by([&] { open_data(unnamed); }), reports(ErrorSource::input, "--validation-groups: ", "no names"));
}

TEST(HeldOut, ReplacesTheFoldersTestSetAndExcludesASeparateOne) {
  EXPECT_EQ(hold_out("synthetic:100x1x2x2:2", 0.2).pair.test->info().samples, 20);
  DataRequest request;
  request.train = request.test = "glyphs";
  request.validation_ratio = 0.1;
  EXPECT_THAT(thrown_by([&] { open_data(request); }),
              reports(ErrorSource::usage, "--test-data glyphs and --validation-ratio 0.1", "give one of them"));
}

TEST(Statistics, AreThoseOfTheTrainingSetAndCarriedByTheTestSet) {
  const ScratchFolder folder;
  folder.write("train-images-idx4-ubyte", idx_file({0x804, 2, 2, 1, 2}, 8));  // planes 0 1, 2 3; 4 5, 6 7
  folder.write("train-labels-idx1-ubyte", idx_labels({0, 1}));
  folder.write("t10k-images-idx4-ubyte", idx_file({0x804, 1, 2, 1, 2}, 4, 200));
  folder.write("t10k-labels-idx1-ubyte", idx_labels({0}));
  const OwnedData data = open_named(folder.path());
  const ChannelStatistics& found = data.pair.train->info().statistics;
  ASSERT_EQ(found.mean.size(), 2u);
  EXPECT_DOUBLE_EQ(found.mean[0], 2.5 / 255);
  EXPECT_DOUBLE_EQ(found.mean[1], 4.5 / 255);
  EXPECT_DOUBLE_EQ(found.deviation[0], std::sqrt(4.25) / 255);
  EXPECT_EQ(data.pair.test->info().statistics, found);
}

TEST(Statistics, OfAFolderInCifarFormatAreThoseOfItsImages) {
  const ScratchFolder folder;
  folder.write("data_batch_1.bin", cifar_file({1, 2}, 10));  // an image of 10s, and one of 11s
  const ChannelStatistics found = open_named(folder.path()).pair.train->info().statistics;
  EXPECT_EQ(found.mean, std::vector<double>(3, 10.5 / 255));
  EXPECT_EQ(found.deviation, std::vector<double>(3, 0.5 / 255));
}

TEST(DataBlock, CanBeAtAnyAddress) {
  const DataRequest request{.train = "synthetic:20x1x3x3:2"};
  GrowingMemory memory;
  load_data(request, memory);
  const Buffer block = memory.take();
  ASSERT_EQ(block.bytes() % 8, 0u);
  const auto copy = std::make_unique<std::uint64_t[]>(block.bytes() / 8);
  std::memcpy(copy.get(), block.data(), block.bytes());
  const auto copied = [&](std::size_t bytes) { return Buffer(copy.get(), bytes, MemorySpace::host, [](void*) {}); };
  const Buffer elsewhere = copied(block.bytes());
  const DataPair pair = open_loaded(elsewhere);
  const DataPair original = open_loaded(block);
  EXPECT_EQ(pair.train->digest(), original.train->digest());
  EXPECT_EQ(contents_of(*pair.train).images, contents_of(*original.train).images);
  SampleBatch batch;
  pair.train->read(std::array<std::int64_t, 1>{0}, batch);
  const auto* pixels = reinterpret_cast<const std::byte*>(batch.images[0].pixels);
  EXPECT_TRUE(pixels >= elsewhere.data() && pixels < static_cast<const std::byte*>(elsewhere.data()) + block.bytes());
  EXPECT_EQ(thrown_by([&] { open_loaded(copied(block.bytes() - 8)); }).source(), ErrorSource::internal);
}

}  // namespace
}  // namespace tutti
