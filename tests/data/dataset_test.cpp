#include "tutti/data/dataset.hpp"

#include "tutti/base/digest.hpp"
#include "tutti/base/error.hpp"

#include <gtest/gtest.h>

#include <array>
#include <string>
#include <vector>

namespace tutti {
namespace {

constexpr std::array<std::uint8_t, 6> kPixels{10, 11, 20, 21, 30, 31};
constexpr std::array<std::int32_t, 3> kLabels{0, 4, 2};

DatasetInfo three_samples() {
  DatasetInfo info;
  info.name = "three";
  info.image = Shape{1, 1, 2};
  info.classes = 5;
  info.samples = 3;
  return info;
}

MemoryDataset three() { return {three_samples(), kPixels, kLabels}; }

TEST(MemoryDataset, GivesViewsOfTheRequestedSamplesInOrder) {
  const MemoryDataset data = three();
  SampleBatch batch;
  data.read(std::array<std::int64_t, 1>{1}, batch);
  data.read(std::array<std::int64_t, 3>{2, 0, 2}, batch);
  ASSERT_EQ(batch.images.size(), 3u);
  EXPECT_EQ(batch.images[0].pixels, &kPixels[4]);
  EXPECT_EQ(batch.images[1].pixels, &kPixels[0]);
  EXPECT_EQ(batch.images[2].pixels, &kPixels[4]);
  EXPECT_EQ(batch.images[1].shape, (Shape{1, 1, 2}));
  EXPECT_EQ(batch.labels, (std::vector<std::int32_t>{2, 0, 2}));
}

TEST(MemoryDataset, CountsTheSamplesOfEachClass) {
  EXPECT_EQ(three().info().class_samples, (std::vector<std::int64_t>{1, 0, 1, 0, 1}));
}

TEST(MemoryDataset, HasTheDigestOfItsImagesAndLabels) {
  EXPECT_EQ(three().digest(), digest("images", std::span<const std::uint8_t>(kPixels)) +
                                  digest("labels", std::span<const std::int32_t>(kLabels)));
  EXPECT_EQ(MemoryDataset(three_samples(), kPixels, kLabels, 42).digest(), 42u);
}

TEST(MemoryDataset, RefusesALabelOutOfRangeNamingTheDataSetAndTheSample) {
  for (const std::int32_t wrong : {5, -1}) {
    try {
      MemoryDataset(three_samples(), kPixels, std::array<std::int32_t, 3>{0, wrong, 2});
      FAIL() << "accepted";
    } catch (const Error& error) {
      EXPECT_EQ(error.source(), ErrorSource::input);
      EXPECT_EQ(error.what(), "sample 1 of three has label " + std::to_string(wrong) + ", but the classes are 0 .. 4");
    }
  }
}

TEST(MemoryDataset, RefusesImagesAndLabelsThatDoNotFitItsShape) {
  EXPECT_THROW(MemoryDataset(three_samples(), std::span(kPixels).first(5), kLabels), Error);
  EXPECT_THROW(MemoryDataset(three_samples(), kPixels, std::span(kLabels).first(2)), Error);
}

TEST(MemoryDataset, RefusesSamplesThatItDoesNotHave) {
  const MemoryDataset data = three();
  SampleBatch batch;
  for (const std::int64_t sample : {std::int64_t{3}, std::int64_t{-1}}) {
    EXPECT_THROW(data.read(std::array{sample}, batch), Error);
  }
}

}  // namespace
}  // namespace tutti
