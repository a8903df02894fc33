// The published data sets in the folder that TUTTI_DATA names.

#include "tutti/data/open_data.hpp"

#include "data/written_sets.hpp"

#include <gtest/gtest.h>

#include <array>
#include <vector>

namespace tutti {
namespace {

std::vector<std::int32_t> first_labels(const Dataset& data) {
  const std::array<std::int64_t, 5> samples{0, 1, 2, 3, 4};
  SampleBatch batch;
  data.read(samples, batch);
  return batch.labels;
}

TEST(RealData, FashionMnistIsReadAsPublished) {
  const OwnedData data = testing_support::open_named("fashion-mnist");
  ASSERT_NE(data.pair.test, nullptr);
  EXPECT_EQ(data.pair.train->info().samples, 60'000);
  EXPECT_EQ(data.pair.test->info().samples, 10'000);
  EXPECT_EQ(data.pair.train->info().image, (Shape{1, 28, 28}));
  EXPECT_EQ(data.pair.test->info().classes, 10);
  EXPECT_EQ(first_labels(*data.pair.train), (std::vector<std::int32_t>{9, 0, 0, 3, 0}));
  EXPECT_EQ(first_labels(*data.pair.test), (std::vector<std::int32_t>{9, 2, 1, 1, 6}));
}

TEST(RealData, CifarIsReadAsPublished) {
  const OwnedData data = testing_support::open_named("cifar-10");
  ASSERT_NE(data.pair.test, nullptr);
  EXPECT_EQ(data.pair.train->info().samples, 50'000);
  EXPECT_GE(data.pair.test->info().samples, 1'000);
  EXPECT_EQ(data.pair.train->info().image, (Shape{3, 32, 32}));
  EXPECT_EQ(data.pair.train->info().classes, 10);
  EXPECT_EQ(first_labels(*data.pair.train), (std::vector<std::int32_t>{6, 9, 9, 4, 1}));
  EXPECT_EQ(first_labels(*data.pair.test), (std::vector<std::int32_t>{3, 8, 8, 0, 6}));
}

}  // namespace
}  // namespace tutti
