#include "tutti/data/dataset.hpp"

#include "tutti/base/digest.hpp"
#include "tutti/base/error.hpp"

#include "support/thrown.hpp"

#include <gtest/gtest.h>

#include <array>
#include <string>
#include <vector>

namespace tutti {
namespace {

constexpr std::array<std::uint8_t, 6> kSixPixels{10, 11, 20, 21, 30, 31};
constexpr std::array<std::int32_t, 3> kLabels{0, 4, 2};

DatasetInfo three_samples() { return {.name = "three", .image = Shape{1, 1, 2}, .classes = 5, .samples = 3}; }

MemoryDataset three() { return {three_samples(), kSixPixels, kLabels}; }

TEST(MemoryDataset, GivesViewsOfTheRequestedSamplesInOrder) {
  const MemoryDataset data = three();
  SampleBatch batch;
  data.read(std::array<std::int64_t, 1>{1}, batch);
  data.read(std::array<std::int64_t, 3>{2, 0, 2}, batch);
  ASSERT_EQ(batch.images.size(), 3u);
  EXPECT_EQ(batch.images[0].pixels, &kSixPixels[4]);
  EXPECT_EQ(batch.images[1].pixels, &kSixPixels[0]);
  EXPECT_EQ(batch.images[2].pixels, &kSixPixels[4]);
  EXPECT_EQ(batch.images[1].shape, (Shape{1, 1, 2}));
  EXPECT_EQ(batch.labels, (std::vector<std::int32_t>{2, 0, 2}));
}

TEST(MemoryDataset, CountsTheSamplesOfEachClass) {
  EXPECT_EQ(three().info().class_samples, (std::vector<std::int64_t>{1, 0, 1, 0, 1}));
}

TEST(MemoryDataset, HasTheDigestOfItsImagesAndLabels) {
  EXPECT_EQ(three().digest(), digest("images", std::span<const std::uint8_t>(kSixPixels)) +
                                  digest("labels", std::span<const std::int32_t>(kLabels)));
  EXPECT_EQ(MemoryDataset(three_samples(), kSixPixels, kLabels, 42).digest(), 42u);
}

TEST(MemoryDataset, RefusesALabelOutOfRangeNamingTheDataSetAndTheSample) {
  for (const std::int32_t wrong : {5, -1}) {
    const std::array<std::int32_t, 3> labels{0, wrong, 2};
    const Error error = thrown_by([&] { MemoryDataset(three_samples(), kSixPixels, labels); });
    EXPECT_EQ(error.source(), ErrorSource::input);
    EXPECT_EQ(error.what(), "sample 1 of three has label " + std::to_string(wrong) + ", but the classes are 0 .. 4");
  }
}

TEST(MemoryDataset, RefusesImagesAndLabelsThatDoNotFitItsShape) {
  EXPECT_THROW(MemoryDataset(three_samples(), std::span(kSixPixels).first(5), kLabels), Error);
  EXPECT_THROW(MemoryDataset(three_samples(), kSixPixels, std::span(kLabels).first(2)), Error);
}

TEST(MemoryDataset, RefusesSamplesThatItDoesNotHave) {
  const MemoryDataset data = three();
  SampleBatch batch;
  for (const std::int64_t sample : {std::int64_t{3}, std::int64_t{-1}}) {
    EXPECT_THROW(data.read(std::array{sample}, batch), Error);
  }
}

TEST(ClassWeights, HaveTheMeanOneOverTheSamples) {
  const std::array<std::uint8_t, 8> pixels{};
  DatasetInfo info = three_samples();
  info.classes = 3;
  info.samples = 4;
  const std::array<std::int32_t, 4> labels{0, 0, 2, 0};
  const MemoryDataset data(info, pixels, labels);
  EXPECT_EQ(class_weights("none", data), std::vector<double>{});
  EXPECT_EQ(class_weights("auto", data), (std::vector<double>{2.0 / 3, 0, 2}));
  EXPECT_EQ(class_weights("4,1e2,4", data), (std::vector<double>{1, 25, 1}));
  for (const char* wrong :
       {"", "1", "1,2", "1,2,3,4", "1,2,", "1,2,x", "1 1,2,3", "1,-2,3", "1,nan,2", "0,1,0", "all"}) {
    const Error error = thrown_by([&] { class_weights(wrong, data); });
    EXPECT_EQ(error.source(), ErrorSource::usage);
    EXPECT_NE(std::string(error.what()).find("give none, auto, or 3 weights of 0 or more"), std::string::npos) << wrong;
  }
}

}  // namespace
}  // namespace tutti
