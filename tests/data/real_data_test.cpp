// The published data sets in the folder that TUTTI_DATA names.

#include "tutti/data/dataset.hpp"

#include <gtest/gtest.h>

#include <array>
#include <numeric>
#include <vector>

namespace tutti {
namespace {

std::vector<std::int32_t> first_labels(const Dataset& data) {
  const std::array<std::int64_t, 5> samples{0, 1, 2, 3, 4};
  std::vector<std::uint8_t> images(samples.size() * static_cast<std::size_t>(data.info().image.elements()));
  std::vector<std::int32_t> labels(samples.size());
  data.read(samples, images, labels);
  return labels;
}

TEST(RealData, FashionMnistIsReadAsPublished) {
  const DataPair data = open_data("fashion-mnist", "");
  ASSERT_NE(data.test, nullptr);
  EXPECT_EQ(data.train->info().samples, 60'000);
  EXPECT_EQ(data.test->info().samples, 10'000);
  EXPECT_EQ(data.train->info().image, (Shape{1, 28, 28}));
  EXPECT_EQ(data.test->info().classes, 10);
  EXPECT_EQ(first_labels(*data.train), (std::vector<std::int32_t>{9, 0, 0, 3, 0}));
  EXPECT_EQ(first_labels(*data.test), (std::vector<std::int32_t>{9, 2, 1, 1, 6}));
}

TEST(RealData, CifarIsReadAsPublished) {
  const DataPair data = open_data("cifar-10", "");
  ASSERT_NE(data.test, nullptr);
  EXPECT_EQ(data.train->info().samples, 50'000);
  EXPECT_GE(data.test->info().samples, 1'000);
  EXPECT_EQ(data.train->info().image, (Shape{3, 32, 32}));
  EXPECT_EQ(data.train->info().classes, 10);
  EXPECT_EQ(first_labels(*data.train), (std::vector<std::int32_t>{6, 9, 9, 4, 1}));
  EXPECT_EQ(first_labels(*data.test), (std::vector<std::int32_t>{3, 8, 8, 0, 6}));
}

}  // namespace
}  // namespace tutti
