#include "tutti/backend/library_floor.hpp"

#include "tutti/backend/backend.hpp"

#include <gtest/gtest.h>

namespace tutti {
namespace {

class LibraryFloorTest : public testing::Test {
 protected:
  void SetUp() override { make_cpu_backend()->enter_compute_thread(1); }
};

TEST_F(LibraryFloorTest, TimesEveryPassThatTheLibraryHasForALayer) {
  const Shape image{2, 20, 8, 8};
  const std::vector<FloorLayer> layers{{Conv2dSpec{.channels = 32, .kernel = 3, .padding = 1}, image},
                                       {LinearSpec{.units = 10, .relu = true}, image},
                                       {BatchNormSpec{.relu = true}, image},
                                       {Pool2dSpec{.kernel = 2, .stride = 2}, image},
                                       {GlobalAveragePoolSpec{}, image}};
  LibraryFloor floor(Precision::fp32, layers);
  const auto times = floor.time_primitives();
  ASSERT_EQ(times.size(), layers.size());
  for (std::size_t i = 0; i < layers.size(); ++i) {
    ASSERT_TRUE(times[i]) << i;
    EXPECT_GT(times[i]->forward, 0) << i;
    EXPECT_GT(times[i]->backward_data, 0) << i;
    EXPECT_EQ(times[i]->backward_weights > 0, i < 2) << i;
  }
}

TEST_F(LibraryFloorTest, LeavesOutWhatIsNotNeededAndWhatTheLibraryHasNot) {
  const std::vector<FloorLayer> layers{
      {Conv2dSpec{.channels = 16, .kernel = 3, .bias = false}, Shape{2, 1, 8, 8}, false},
      {AddSpec{}, Shape{2, 16, 8, 8}},
      {DropoutSpec{}, Shape{2, 16}}};
  const auto times = LibraryFloor(Precision::fp32, layers).time_primitives();
  ASSERT_TRUE(times.at(0));
  EXPECT_EQ(times[0]->backward_data, 0);
  EXPECT_GT(times[0]->backward_weights, 0);
  EXPECT_FALSE(times.at(1));
  EXPECT_FALSE(times.at(2));
}

TEST_F(LibraryFloorTest, MeasuresWhatTheProcessorCanDo) {
  const ProcessorRates rates = LibraryFloor(Precision::fp32, {}).measure_processor();
  EXPECT_GT(rates.f32_operations, 0);
  EXPECT_GT(rates.copied_bytes, 0);
  EXPECT_GE(rates.bf16_operations, 0);
}

}  // namespace
}  // namespace tutti
