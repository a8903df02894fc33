#include "tutti/data/open_data.hpp"

#include "tutti/base/error.hpp"

#include "data/written_sets.hpp"
#include "support/reports.hpp"
#include "support/scratch_folder.hpp"
#include "support/thrown.hpp"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <numeric>
#include <string>
#include <vector>

namespace tutti {
namespace {

using testing_support::Bytes;
using testing_support::cifar_file;
using testing_support::Contents;
using testing_support::contents_of;
using testing_support::gzipped;
using testing_support::idx_file;
using testing_support::idx_labels;
using testing_support::open_named;

Error refusal_to_open(const std::string& where, const std::string& test = "") {
  return thrown_by([&] { open_named(where, test); });
}

// Two images of 2x3 in the training set, one in the test set.
void write_small_idx(const ScratchFolder& folder) {
  folder.write("train-images-idx3-ubyte", idx_file({0x803, 2, 2, 3}, 12));
  folder.write("train-labels-idx1-ubyte", idx_labels({1, 0}));
  folder.write("t10k-images-idx3-ubyte", idx_file({0x803, 1, 2, 3}, 6, 100));
  folder.write("t10k-labels-idx1-ubyte", idx_labels({1}));
}

TEST(OpenData, ReadsAFolderOfIdxFiles) {
  const ScratchFolder folder;
  write_small_idx(folder);
  const OwnedData data = open_named(folder.path());
  EXPECT_EQ(data.pair.train->info().name, std::filesystem::path(folder.path()).filename().string());
  EXPECT_EQ(data.pair.train->info().image, (Shape{1, 2, 3}));
  EXPECT_EQ(data.pair.train->info().samples, 2);
  const Contents train = contents_of(*data.pair.train);
  EXPECT_EQ(train.images, (std::vector<std::uint8_t>{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11}));
  EXPECT_EQ(train.labels, (std::vector<std::int32_t>{1, 0}));
  ASSERT_NE(data.pair.test, nullptr);
  EXPECT_EQ(contents_of(*data.pair.test).images, (std::vector<std::uint8_t>{100, 101, 102, 103, 104, 105}));
}

TEST(OpenData, CountsTheClassesOfIdxFilesForBothSets) {
  const ScratchFolder folder;
  write_small_idx(folder);
  folder.write("train-labels-idx1-ubyte", idx_labels({1, 4}));
  const OwnedData data = open_named(folder.path());
  EXPECT_EQ(data.pair.train->info().classes, 5);
  EXPECT_EQ(data.pair.test->info().classes, 5);

  const ScratchFolder uniform;
  uniform.write("train-images-idx3-ubyte", idx_file({0x803, 1, 1, 1}, 1));
  uniform.write("train-labels-idx1-ubyte", idx_labels({0}));
  EXPECT_EQ(open_named(uniform.path()).pair.train->info().classes, 2);
}

TEST(OpenData, HasNoTestSetWhereTheFolderHasNone) {
  const ScratchFolder folder;
  folder.write("train-images-idx3-ubyte", idx_file({0x803, 1, 1, 1}, 1));
  folder.write("train-labels-idx1-ubyte", idx_labels({0}));
  EXPECT_EQ(open_named(folder.path()).pair.test, nullptr);
}

TEST(OpenData, ReadsCompressedAndDottedNamesToTheSameDigest) {
  const ScratchFolder plain;
  write_small_idx(plain);
  const ScratchFolder packed;
  packed.write("train-images.idx3-ubyte.gz", gzipped(idx_file({0x803, 2, 2, 3}, 12)));
  packed.write("train-labels.idx1-ubyte", idx_labels({1, 0}));
  const auto digest_in = [](const ScratchFolder& folder) { return open_named(folder.path()).pair.train->digest(); };
  EXPECT_EQ(digest_in(plain), digest_in(packed));
}

TEST(OpenData, ReadsIdxFilesWithChannels) {
  const ScratchFolder folder;
  folder.write("train-images-idx4-ubyte", idx_file({0x804, 2, 3, 2, 1}, 12));
  folder.write("train-labels-idx1-ubyte", idx_labels({1, 0}));
  EXPECT_EQ(open_named(folder.path()).pair.train->info().image, (Shape{3, 2, 1}));
}

TEST(OpenData, NamesFileOffsetAndReasonOfMalformedIdxFiles) {
  const ScratchFolder folder;
  write_small_idx(folder);
  const auto with_images = [&](const Bytes& bytes) {
    folder.write("train-images-idx3-ubyte", bytes);
    return refusal_to_open(folder.path());
  };
  EXPECT_THAT(with_images(idx_file({0x801, 2, 2, 3}, 12)),
              reports(ErrorSource::input, "train-images-idx3-ubyte' is malformed at byte 0: magic"));
  EXPECT_THAT(with_images(idx_file({0x803, 2, 2, 3}, 11)),
              reports(ErrorSource::input, "at byte 16: the header announces 12 more bytes"));
  EXPECT_THAT(with_images(idx_file({0x803, 2, 2, 3}, 13)),
              reports(ErrorSource::input, "at byte 28: there is more content"));
  EXPECT_THAT(with_images(idx_file({0x803, 2, 0, 3}, 0)), reports(ErrorSource::input, "at byte 8: the height is 0"));
  EXPECT_THAT(with_images(idx_file({0x803, 0xFFFFFFFF, 2, 3}, 12)),
              reports(ErrorSource::input, "at byte 4: the number of images is 4294967295"));
  EXPECT_THAT(with_images(idx_file({0x803}, 1)), reports(ErrorSource::input, "at byte 5: the content ends here"));
  EXPECT_THAT(with_images(gzipped(idx_file({0x803, 2, 2, 3}, 11))),
              reports(ErrorSource::input, "at byte 27 of its uncompressed content: "));
  EXPECT_THAT(with_images(idx_file({0x803, 3, 2, 2}, 12)),
              reports(ErrorSource::input,
                      "train-labels-idx1-ubyte' is malformed at byte 4: 2 labels do not match the 3 images"));
}

TEST(OpenData, ReportsAMissingIdxFileOfAPair) {
  const ScratchFolder folder;
  folder.write("train-images-idx3-ubyte", idx_file({0x803, 1, 1, 1}, 1));
  EXPECT_THAT(refusal_to_open(folder.path()), reports(ErrorSource::io, "train-labels-idx1-ubyte (or .gz) is missing"));
}

TEST(OpenData, ReadsCifarBatchesInTheOrderOfTheirNumbers) {
  const ScratchFolder folder;
  folder.write("data_batch_10.bin", cifar_file({7}, 70));
  folder.write("data_batch_2.bin.gz", gzipped(cifar_file({5, 6}, 50)));
  folder.write("data_batch_1.bin", cifar_file({4}, 40));
  folder.write("test_batch_short.bin", cifar_file({7}, 90));
  const OwnedData data = open_named(folder.path());
  EXPECT_EQ(data.pair.train->info().image, (Shape{3, 32, 32}));
  EXPECT_EQ(data.pair.train->info().classes, 10);
  const Contents train = contents_of(*data.pair.train);
  EXPECT_EQ(train.labels, (std::vector<std::int32_t>{4, 5, 6, 7}));
  EXPECT_EQ(train.images[0], 40);
  EXPECT_EQ(train.images[2 * 3072], 51);
  EXPECT_EQ(train.images.back(), 70);
  EXPECT_EQ(contents_of(*data.pair.test).labels, (std::vector<std::int32_t>{7}));
}

TEST(OpenData, ReadsACifarBatchOnceWhenItExistsRawAndCompressed) {
  const ScratchFolder folder;
  folder.write("data_batch_1.bin", cifar_file({4}));
  folder.write("data_batch_1.bin.gz", gzipped(cifar_file({4})));
  EXPECT_EQ(open_named(folder.path()).pair.train->info().samples, 1);
}

TEST(OpenData, TakesCifarClassNamesFromTheFolder) {
  const ScratchFolder folder;
  folder.write("data_batch_1.bin", cifar_file({4}));
  const std::string names = "airplane\nautomobile\nbird\ncat\ndeer\ndog\nfrog\nhorse\nship\ntruck\n\n";
  folder.write("batches.meta.txt", Bytes(names.begin(), names.end()));
  const OwnedData data = open_named(folder.path());
  ASSERT_EQ(data.pair.train->info().class_names.size(), 10u);
  EXPECT_EQ(data.pair.train->info().class_names[9], "truck");

  folder.write("batches.meta.txt", Bytes(names.begin(), names.begin() + 9));
  EXPECT_THAT(refusal_to_open(folder.path()), reports(ErrorSource::input, "there are 1 class names, not 10"));
}

TEST(OpenData, NamesFileOffsetAndReasonOfMalformedCifarBatches) {
  const ScratchFolder folder;
  folder.write("data_batch_1.bin", cifar_file({1, 10}));
  EXPECT_THAT(
      refusal_to_open(folder.path()),
      reports(ErrorSource::input, "data_batch_1.bin' is malformed at byte 3073: label 10 is not one of 0 .. 9"));
  Bytes torn = cifar_file(Bytes(40, 3));
  torn.pop_back();
  folder.write("data_batch_1.bin", torn);
  EXPECT_THAT(refusal_to_open(folder.path()),
              reports(ErrorSource::input, "at byte 119847: a record has 3072 bytes, not 3073"));
  folder.write("data_batch_1.bin", {});
  EXPECT_THAT(refusal_to_open(folder.path()), reports(ErrorSource::input, "at byte 0: the file contains no records"));
}

TEST(OpenData, TakesATestFolderWithFilesNamedEitherWay) {
  const ScratchFolder train;
  write_small_idx(train);
  const ScratchFolder test;
  test.write("train-images-idx3-ubyte", idx_file({0x803, 3, 2, 3}, 18));
  test.write("train-labels-idx1-ubyte", idx_labels({0, 1, 0}));
  EXPECT_EQ(open_named(train.path(), test.path()).pair.test->info().samples, 3);
  EXPECT_EQ(open_named(train.path(), test.path()).pair.train->info().classes, 2);

  test.write("t10k-images-idx3-ubyte.gz", gzipped(idx_file({0x803, 2, 2, 3}, 12)));
  test.write("t10k-labels-idx1-ubyte.gz", gzipped(idx_labels({0, 1})));
  EXPECT_EQ(open_named(train.path(), test.path()).pair.test->info().samples, 2);
}

TEST(OpenData, RefusesTestImagesOfAnotherShapeAndLabelsOfOtherClasses) {
  const ScratchFolder folder;
  write_small_idx(folder);
  EXPECT_THAT(refusal_to_open("glyphs", folder.path()),
              reports(ErrorSource::input, "training and test images must agree"));

  const ScratchFolder many_classes;
  many_classes.write("train-images-idx4-ubyte", idx_file({0x804, 1, 3, 32, 32}, 3072));
  many_classes.write("train-labels-idx1-ubyte", idx_labels({10}));
  const ScratchFolder cifar;
  cifar.write("data_batch_1.bin", cifar_file({4}));
  EXPECT_THAT(refusal_to_open(cifar.path(), many_classes.path()),
              reports(ErrorSource::input, "the test label is 10, which no sample"));
}

TEST(OpenData, RefusesTestLabelsThatNoTrainingSampleHas) {
  const ScratchFolder idx;
  write_small_idx(idx);
  idx.write("t10k-images-idx3-ubyte", idx_file({0x803, 3, 2, 3}, 18));
  idx.write("t10k-labels-idx1-ubyte", idx_labels({0, 1, 254}));
  EXPECT_THAT(refusal_to_open(idx.path()),
              reports(ErrorSource::input,
                      "t10k-labels-idx1-ubyte', label 2 (counted from 0): the test label is 254, which no sample"));

  EXPECT_EQ(open_data({.train = idx.path(), .allow_untrained_labels = true}).pair.test->info().classes, 255);

  const ScratchFolder cifar;
  cifar.write("data_batch_1.bin", cifar_file({0, 1}));
  cifar.write("test_batch_1.bin", cifar_file({1, 0}));
  cifar.write("test_batch_2.bin", cifar_file({1, 9}));
  EXPECT_THAT(refusal_to_open(cifar.path()),
              reports(ErrorSource::input, "test_batch_2.bin', label 1 (counted from 0): the test label is 9"));
}

TEST(OpenData, LooksForABareNameInTheUsualPlaces) {
  const ScratchFolder folder;
  for (const auto& [place, label] : {std::pair<std::string, std::uint8_t>{"here/data/one", 3},
                                     {"here/two", 4},
                                     {"root/two", 5},
                                     {"root/three", 6}}) {
    folder.write(place + "/data_batch_1.bin", cifar_file({label}));
  }
  const auto before = std::filesystem::current_path();
  std::filesystem::current_path(folder.file("here"));
  ASSERT_EQ(setenv("TUTTI_DATA", folder.file("root").c_str(), 1), 0);
  EXPECT_EQ(contents_of(*open_named("one").pair.train).labels[0], 3);
  EXPECT_EQ(contents_of(*open_named("two").pair.train).labels[0], 4);
  EXPECT_EQ(contents_of(*open_named("three").pair.train).labels[0], 6);
  EXPECT_THAT(refusal_to_open("four"),
              reports(ErrorSource::io, fmt::format("looked for ./four, ./data/four, {}/root/four", folder.path())));
  ASSERT_EQ(unsetenv("TUTTI_DATA"), 0);
  EXPECT_THAT(refusal_to_open("three"),
              reports(ErrorSource::io, "(TUTTI_DATA is not set)", "Built-in sets: glyphs, synthetic:NxCxHxW:classes"));
  std::filesystem::current_path(before);
}

TEST(OpenData, RefusesFoldersWithoutData) {
  EXPECT_THAT(refusal_to_open(""), reports(ErrorSource::usage, "the name of the data set is empty"));
  const ScratchFolder folder;
  EXPECT_THAT(refusal_to_open(folder.path()),
              reports(ErrorSource::input,
                      fmt::format("'{}' is empty: put one folder of images per class there", folder.path())));
  EXPECT_THAT(refusal_to_open(folder.file("missing")), reports(ErrorSource::io, "/missing'"));
  folder.write("file", {1});
  EXPECT_THAT(refusal_to_open(folder.file("file")),
              reports(ErrorSource::input, "file' is not a data set: give a folder, or an HDF5 file that "));
  EXPECT_THAT(refusal_to_open(folder.path()),
              reports(ErrorSource::input, "contains no images that can be read: neither idx files"));
  std::filesystem::create_directory(folder.file("data_batch_1.bin"));
  EXPECT_THAT(refusal_to_open(folder.path()), reports(ErrorSource::io, "cannot read"));
  EXPECT_THAT(refusal_to_open(folder.file(std::string(5000, 'x'))), reports(ErrorSource::io, "File name too long"));
}

TEST(OpenData, NamesTheDownloadCommandForAnEmptyFolderOfAPublishedSet) {
  const ScratchFolder folder;
  std::filesystem::create_directories(folder.file("sets/mnist"));
  EXPECT_THAT(refusal_to_open(folder.file("sets/mnist/")),
              reports(ErrorSource::input, fmt::format(" data fetch mnist --to {}/sets downloads it", folder.path())));
  std::filesystem::create_directories(folder.file("data/cifar10"));
  const auto before = std::filesystem::current_path();
  std::filesystem::current_path(folder.path());
  EXPECT_THAT(refusal_to_open("cifar10"),
              reports(ErrorSource::input, "'./data/cifar10' is empty: ", " data fetch cifar10 downloads it"));
  std::filesystem::current_path(before);
}

TEST(OpenData, DrawsSyntheticImagesThatShowTheirLabels) {
  const OwnedData data = open_named("synthetic:300x2x8x9:3");
  EXPECT_EQ(data.pair.train->info().image, (Shape{2, 8, 9}));
  EXPECT_EQ(data.pair.train->info().classes, 3);
  EXPECT_EQ(data.pair.train->info().samples, 300);
  EXPECT_EQ(data.pair.test->info().samples, 30);
  EXPECT_EQ(open_named("synthetic:300x2x8x9:3").pair.train->digest(), data.pair.train->digest());

  // Each test image is nearest to the mean of its own class.
  const Contents train = contents_of(*data.pair.train);
  const Contents test = contents_of(*data.pair.test);
  constexpr std::size_t kPixels = 144;
  std::vector<std::vector<double>> means(3, std::vector<double>(kPixels));
  for (std::size_t i = 0; i < 300; ++i) {
    const auto label = static_cast<std::size_t>(train.labels[i]);
    const auto of_class = std::count(train.labels.begin(), train.labels.end(), train.labels[i]);
    for (std::size_t p = 0; p < kPixels; ++p)
      means[label][p] += train.images[i * kPixels + p] / static_cast<double>(of_class);
  }
  for (std::size_t i = 0; i < 30; ++i) {
    std::vector<double> distances(3);
    for (std::size_t label = 0; label < 3; ++label) {
      for (std::size_t p = 0; p < kPixels; ++p) {
        const double difference = test.images[i * kPixels + p] - means[label][p];
        distances[label] += difference * difference;
      }
    }
    EXPECT_EQ(std::min_element(distances.begin(), distances.end()) - distances.begin(), test.labels[i]);
  }
}

TEST(OpenData, RefusesSyntheticSetsThatAreNotSpelledOut) {
  for (const char* text : {"", "10", "10x1x2:3", "10x1x2x3", "10x1x2x3:", "10x1x2x3:1", "0x1x2x3:4", "10x1x2x3:4 ",
                           "-1x1x2x3:4", "10x1x2x3x4:5", "99999999999x9999999x99999x9999:10"}) {
    EXPECT_THAT(refusal_to_open(std::string("synthetic:") + text),
                reports(ErrorSource::usage, "synthetic:1000x3x32x32:10"));
  }
}

}  // namespace
}  // namespace tutti
