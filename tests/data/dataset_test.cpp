#include "tutti/data/dataset.hpp"

#include "tutti/base/digest.hpp"
#include "tutti/base/error.hpp"

#include <gtest/gtest.h>

#include <array>
#include <string>
#include <vector>

namespace tutti {
namespace {

DatasetInfo three_samples() { return {"three", Shape{1, 1, 2}, 5, {}, 3}; }

MemoryDataset three() { return {three_samples(), {10, 11, 20, 21, 30, 31}, {0, 4, 2}}; }

TEST(MemoryDataset, ReadsTheSamplesAskedForInThatOrder) {
  const MemoryDataset data = three();
  const std::array<std::int64_t, 3> samples{2, 0, 2};
  std::vector<std::uint8_t> images(6);
  std::vector<std::int32_t> labels(3);
  data.read(samples, images, labels);
  EXPECT_EQ(images, (std::vector<std::uint8_t>{30, 31, 10, 11, 30, 31}));
  EXPECT_EQ(labels, (std::vector<std::int32_t>{2, 0, 2}));
}

TEST(MemoryDataset, HasTheDigestOfItsImagesAndLabels) {
  const std::vector<std::uint8_t> images{10, 11, 20, 21, 30, 31};
  const std::vector<std::int32_t> labels{0, 4, 2};
  EXPECT_EQ(three().digest(), digest("images", std::span(images)) + digest("labels", std::span(labels)));
}

TEST(MemoryDataset, RefusesALabelOutOfRangeNamingTheSetAndTheSample) {
  for (const std::int32_t wrong : {5, -1}) {
    try {
      MemoryDataset(three_samples(), {1, 2, 3, 4, 5, 6}, {0, wrong, 2});
      FAIL() << "accepted";
    } catch (const Error& error) {
      EXPECT_EQ(error.source(), ErrorSource::input);
      EXPECT_EQ(error.what(), "sample 1 of three has label " + std::to_string(wrong) + ", but the classes are 0 .. 4");
    }
  }
}

TEST(MemoryDataset, RefusesImagesAndLabelsThatDoNotFitItsShape) {
  EXPECT_THROW(MemoryDataset(three_samples(), {1, 2, 3, 4, 5}, {0, 1, 2}), Error);
  EXPECT_THROW(MemoryDataset(three_samples(), {1, 2, 3, 4, 5, 6}, {0, 1}), Error);
}

TEST(MemoryDataset, RefusesSamplesAndRoomThatDoNotFit) {
  const MemoryDataset data = three();
  std::vector<std::uint8_t> images(2);
  std::vector<std::int32_t> labels(1);
  for (const std::int64_t sample : {std::int64_t{3}, std::int64_t{-1}}) {
    EXPECT_THROW(data.read(std::array{sample}, images, labels), Error);
  }
  EXPECT_THROW(data.read(std::array<std::int64_t, 2>{0, 1}, images, labels), Error);
}

}  // namespace
}  // namespace tutti
