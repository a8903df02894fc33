// Readers decode of image files only what they need, to the batches that whole images give.

#include "tutti/data/batch_loader.hpp"
#include "tutti/data/open_data.hpp"

#include "data/written_images.hpp"
#include "support/late_device.hpp"
#include "support/reports.hpp"
#include "support/scratch_folder.hpp"
#include "support/thrown.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <string>
#include <vector>

namespace tutti {
namespace {

using testing_support::Bytes;
using testing_support::jpeg_of;
using testing_support::MemoryBackend;
using testing_support::noise;
using testing_support::open_named;
using testing_support::png_of;
using testing_support::turned;

// Passes on one of the two ways to read a set of image files, and fails in the other.
class OneWay : public Dataset {
 public:
  OneWay(const Dataset& files, bool is_encoded) : files_(files), is_encoded_(is_encoded) {}

  const DatasetInfo& info() const override { return files_.info(); }
  bool is_encoded() const override { return is_encoded_; }
  void read(std::span<const std::int64_t> samples, SampleBatch& batch) const override {
    if (is_encoded_) throw std::logic_error("whole images are read");
    files_.read(samples, batch);
  }
  ImageFile image_file(std::int64_t sample, std::vector<std::byte>& buffer) const override {
    if (!is_encoded_) throw std::logic_error("files are read");
    return files_.image_file(sample, buffer);
  }
  std::span<const std::int32_t> labels() const override { return files_.labels(); }
  std::size_t resident_bytes() const override { return 0; }
  std::uint64_t digest() const override { return 0; }

 private:
  const Dataset& files_;
  bool is_encoded_;
};

// Files of every kind and of many sizes.
class EncodedImages : public ::testing::Test {
 public:
  EncodedImages() {
    for (int i = 0; i < 12; ++i) {
      const int height = 40 + 7 * i;
      const int width = 110 - 5 * i;
      const std::string name = "class" + std::to_string(i % 3) + "/" + std::to_string(i);
      folder.write(name + "a.jpg", jpeg_of(noise(3, height, width)));
      folder.write(name + "b.jpg", turned(jpeg_of(noise(3, width, height)), 1 + i % 8));
      folder.write(name + "c.jpg", turned(jpeg_of(noise(1, height, width)), 1 + i % 8));
      folder.write(name + "d.png", png_of(noise(i % 2 == 0 ? 1 : 3, height, width)));
    }
  }

  LoaderPlan plan(const std::string& augment, std::int64_t size = 32) const {
    const OwnedData data = open_named(folder.path());
    LoaderPlan plan;
    plan.batch_size = 48;
    plan.num_parts = 2;
    plan.parts = {0, 2};
    plan.order = {Shuffle::global, 5};
    plan.recipe =
        make_recipe({.augment = parse_augment(augment), .normalize = "0.4/0.3", .image_size = size, .seed = 7},
                    data.pair.train->info());
    return plan;
  }

  // The values and labels of two epochs.
  static std::vector<float> read_all(const Dataset& data, const LoaderPlan& plan) {
    MemoryBackend backend;
    BatchLoader loader(data, backend, plan);
    const auto stream = backend.make_stream();
    std::vector<float> all;
    for (int step = 0; step < 2; ++step) {
      for (const Batch& batch : loader.next(*stream).batches) {
        const auto* values = static_cast<const float*>(batch.images.data);
        all.insert(all.end(), values, values + batch.images.shape.elements());
        const auto* labels = static_cast<const std::int32_t*>(batch.labels.data);
        std::copy_n(labels, batch.samples, std::back_inserter(all));
      }
    }
    return all;
  }

  ScratchFolder folder;
};

TEST_F(EncodedImages, GiveTheBatchesThatWholeImagesGive) {
  const OwnedData data = open_named(folder.path());
  const Dataset& files = *data.pair.train;
  ASSERT_TRUE(files.is_encoded());
  for (const std::string augment : {"none", "none,flip", "crop-flip", "pad-crop-flip", "resized-crop", "shift:3",
                                    "resized-crop,trivial,erase:0.5", "resized-crop,mixup:0.2,cutmix:1"}) {
    const LoaderPlan of = plan(augment);
    EXPECT_EQ(read_all(OneWay(files, true), of), read_all(OneWay(files, false), of)) << augment;
  }
}

TEST_F(EncodedImages, GiveTheSameBatchesToAnyNumberOfReaders) {
  const OwnedData data = open_named(folder.path());
  LoaderPlan of = plan("resized-crop,erase:0.3");
  const std::vector<float> expected = read_all(*data.pair.train, of);
  for (const int readers : {1, 2, 5}) {
    of.steps_ahead = 2;
    of.readers = readers;
    EXPECT_EQ(read_all(*data.pair.train, of), expected) << readers;
  }
}

TEST_F(EncodedImages, AreRefusedByNameAndRemedyIfTheyChange) {
  const OwnedData data = open_named(folder.path());
  folder.write("class1/7a.jpg", Bytes(100, 3));
  EXPECT_THAT(thrown_by([&] { read_all(*data.pair.train, plan("none")); }),
              reports(ErrorSource::input, "class1/7a.jpg' cannot be decoded: it is neither ", "--skip-bad-images"));
}

// Waves of 64 and 80 pixels.
testing_support::Picture waves(int height, int width) {
  testing_support::Picture picture{3, height, width, {}};
  for (int y = 0; y < height; ++y) {
    for (int x = 0; x < width; ++x) {
      const double level = 128 + 60 * std::sin(y * 0.098) + 60 * std::sin(x * 0.0785);
      for (int c = 0; c < 3; ++c) picture.pixels.push_back(static_cast<std::uint8_t>(level));
    }
  }
  return picture;
}

// The values at the edges of a crop differ most, since the filter of a scaled image reaches beyond the crop. A crop
// that begins a decoded pixel beside its place would differ by up to 50 of 255 levels where the waves are steepest.
TEST(ScaledDecode, GivesNearlyTheValuesOfWholeImages) {
  const ScratchFolder folder;
  for (int i = 0; i < 8; ++i)
    folder.write("a/" + std::to_string(i) + ".jpg", jpeg_of(waves(301 + 43 * i, 800 - 37 * i)));
  const OwnedData data = open_named(folder.path());
  int differing = 0;
  for (const std::string augment : {"none", "crop-flip", "resized-crop", "pad-crop-flip", "shift:5"}) {
    LoaderPlan plan;
    plan.batch_size = 8;
    plan.parts = {0, 1};
    const auto values = [&](const std::string& text) {
      plan.recipe = make_recipe({.augment = parse_augment(text), .normalize = "none", .image_size = 64, .seed = 7},
                                data.pair.train->info());
      return EncodedImages::read_all(*data.pair.train, plan);
    };
    const std::vector<float> scaled = values(augment + ",scaled-decode");
    const std::vector<float> whole = values(augment);
    ASSERT_EQ(scaled.size(), whole.size());
    double sum = 0;
    for (std::size_t i = 0; i < whole.size(); ++i) {
      const double off = std::abs(scaled[i] - whole[i]) * 255;
      ASSERT_LE(off, 10) << augment << ", value " << i << " of " << whole[i];
      sum += off;
      differing += off > 0 ? 1 : 0;
    }
    EXPECT_LE(sum / static_cast<double>(whole.size()), 0.7) << augment;
  }
  EXPECT_GT(differing, 0);
}

TEST_F(EncodedImages, KeepTheirBitsUnderScaledDecodeIfTheyAreSmallOrTurnedOrPngs) {
  const OwnedData data = open_named(folder.path());
  EXPECT_EQ(read_all(*data.pair.train, plan("resized-crop,scaled-decode", 64)),
            read_all(*data.pair.train, plan("resized-crop", 64)));
}

TEST(EncodedImagesOfOneSize, AreRefusedIfOneHasAnotherSizeNow) {
  const ScratchFolder folder;
  for (const std::string name : {"a/1.jpg", "a/2.jpg", "b/3.jpg"}) folder.write(name, jpeg_of(noise(3, 16, 16)));
  const OwnedData data = open_named(folder.path());
  folder.write("a/2.jpg", jpeg_of(noise(3, 16, 17)));
  LoaderPlan plan;
  plan.batch_size = 3;
  plan.parts = {0, 1};
  plan.recipe = make_recipe({.normalize = "none"}, data.pair.train->info());
  MemoryBackend backend;
  BatchLoader loader(*data.pair.train, backend, plan);
  const auto stream = backend.make_stream();
  EXPECT_THAT(thrown_by([&] { loader.next(*stream); }),
              reports(ErrorSource::input, "a/2.jpg' is 3x16x17 now, but was 3x16x16 ", "start again"));
}

}  // namespace
}  // namespace tutti
