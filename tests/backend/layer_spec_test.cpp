#include "tutti/backend/layer_spec.hpp"

#include "tutti/base/error.hpp"

#include "support/reports.hpp"
#include "support/thrown.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <utility>

namespace tutti {
namespace {

template <class... Words>
void expect_refused(const LayerSpec& spec, const Shape& sample, const Words&... words) {
  EXPECT_THAT(thrown_by([&] { output_shape(spec, sample); }), reports(ErrorSource::input, words...));
}

const Shape kImage{3, 9, 11};

TEST(LayerSpec, ConvolutionHasOnlyWholeWindowsOnBothAxes) {
  EXPECT_EQ(output_shape(Conv2dSpec{8, 3, 1, 0}, kImage), (Shape{8, 7, 9}));
  EXPECT_EQ(output_shape(Conv2dSpec{8, 3, 1, 1}, kImage), (Shape{8, 9, 11}));
  EXPECT_EQ(output_shape(Conv2dSpec{8, 4, 3, 1}, kImage), (Shape{8, 3, 4}));
  EXPECT_EQ(output_shape(Conv2dSpec{1, 9, 1, 0}, kImage), (Shape{1, 1, 3}));
}

TEST(LayerSpec, PoolingIgnoresIncompleteWindows) {
  EXPECT_EQ(output_shape(Pool2dSpec{Pooling::max, 2, 2}, kImage), (Shape{3, 4, 5}));
  EXPECT_EQ(output_shape(Pool2dSpec{Pooling::average, 3, 1}, kImage), (Shape{3, 7, 9}));
}

TEST(LayerSpec, PaddedPoolingCountsThePadding) {
  EXPECT_EQ(output_shape(Pool2dSpec{Pooling::max, 3, 2, 1}, kImage), (Shape{3, 5, 6}));
  expect_refused(Pool2dSpec{Pooling::max, 3, 2, 2}, kImage, "max-pool2d", "padding 2", "kernel 3");
}

TEST(LayerSpec, NormsAddsAndDropoutKeepTheShapeAndTheAverageLeavesOnePixel) {
  EXPECT_EQ(output_shape(BatchNormSpec{true, true}, kImage), kImage);
  EXPECT_EQ(output_shape(AddSpec{}, kImage), kImage);
  EXPECT_EQ(output_shape(DropoutSpec{0.5}, Shape{7}), Shape{7});
  EXPECT_EQ(output_shape(GlobalAveragePoolSpec{}, kImage), (Shape{3, 1, 1}));
  expect_refused(BatchNormSpec{}, Shape{7}, "batch-norm", "image");
  expect_refused(GlobalAveragePoolSpec{}, Shape{7}, "global-average-pool", "image");
  expect_refused(DropoutSpec{1.0}, kImage, "dropout", "rate is 1");
  expect_refused(DropoutSpec{-0.1}, kImage, "dropout", "rate is -0.1");
  expect_refused(ElementwiseSpec{Function::scale, NAN}, kImage, "scale", "factor is nan");
}

TEST(LayerSpec, BatchNormHasScaleShiftAndTheStatisticsThatNoOptimizerTouches) {
  const auto list = parameters(BatchNormSpec{}, kImage);
  ASSERT_EQ(list.size(), 4u);
  const ParameterKind kinds[] = {ParameterKind::scale, ParameterKind::shift, ParameterKind::mean,
                                 ParameterKind::variance};
  for (std::size_t i = 0; i < 4; ++i) {
    EXPECT_EQ(list[i].kind, kinds[i]);
    EXPECT_EQ(list[i].shape, Shape{3});
    EXPECT_EQ(is_statistic(list[i].kind), i >= 2);
  }
}

TEST(LayerSpec, OnlyAddsTakeAResidual) {
  EXPECT_TRUE(takes_residual(AddSpec{}));
  EXPECT_TRUE(takes_residual(BatchNormSpec{.add = true}));
  EXPECT_FALSE(takes_residual(BatchNormSpec{}));
  EXPECT_FALSE(takes_residual(Conv2dSpec{8, 3}));
}

TEST(LayerSpec, BackwardPassesReadTheOutputForReluAndTheInputForSumsOfProducts) {
  const auto reads = [](const LayerSpec& spec) {
    const LayerReads found = backward_reads(spec);
    return std::pair(found.input, found.output);
  };
  EXPECT_EQ(reads(Conv2dSpec{.relu = true}), std::pair(true, true));
  EXPECT_EQ(reads(LinearSpec{.relu = false}), std::pair(true, false));
  EXPECT_EQ(reads(BatchNormSpec{.relu = true}), std::pair(true, true));
  EXPECT_EQ(reads(AddSpec{.relu = true}), std::pair(false, true));
  EXPECT_EQ(reads(Pool2dSpec{}), std::pair(false, false));
  EXPECT_EQ(reads(GlobalAveragePoolSpec{}), std::pair(false, false));
  EXPECT_EQ(reads(DropoutSpec{}), std::pair(false, false));
  EXPECT_EQ(reads(ElementwiseSpec{Function::relu6}), std::pair(false, true));
  EXPECT_EQ(reads(ElementwiseSpec{Function::gelu}), std::pair(true, false));
}

TEST(LayerSpec, LinearFlattensAnyInput) {
  EXPECT_EQ(output_shape(LinearSpec{10}, kImage), (Shape{10}));
  EXPECT_EQ(output_shape(LinearSpec{1}, Shape{7}), (Shape{1}));
}

TEST(LayerSpec, ParametersAreListedWeightFirstAndBiasOnlyWhenThereIsOne) {
  const auto conv = parameters(Conv2dSpec{8, 5, 1, 0}, kImage);
  ASSERT_EQ(conv.size(), 2u);
  EXPECT_EQ(conv[0].kind, ParameterKind::weight);
  EXPECT_EQ(conv[0].shape, (Shape{8, 3, 5, 5}));
  EXPECT_EQ(conv[1].kind, ParameterKind::bias);
  EXPECT_EQ(conv[1].shape, (Shape{8}));
  const auto linear = parameters(LinearSpec{10, false}, kImage);
  ASSERT_EQ(linear.size(), 1u);
  EXPECT_EQ(linear[0].shape, (Shape{10, 3 * 9 * 11}));
  EXPECT_TRUE(parameters(Pool2dSpec{Pooling::max, 2, 2}, kImage).empty());
}

TEST(LayerSpec, MultiplyAddsAreThoseOfOneSample) {
  EXPECT_EQ(multiply_adds(Conv2dSpec{8, 3, 1, 0}, kImage), 8 * 7 * 9 * 3 * 3 * 3);
  EXPECT_EQ(multiply_adds(LinearSpec{10}, kImage), 10 * 3 * 9 * 11);
  EXPECT_EQ(multiply_adds(Pool2dSpec{Pooling::average, 2, 2}, kImage), 0);
}

TEST(LayerSpec, TypesAndKindsHaveTheWordsOfModelFiles) {
  EXPECT_EQ(type_name(Conv2dSpec{}), "conv2d");
  EXPECT_EQ(type_name(Pool2dSpec{Pooling::max, 2, 2}), "max-pool2d");
  EXPECT_EQ(type_name(Pool2dSpec{Pooling::average, 2, 2}), "average-pool2d");
  EXPECT_EQ(type_name(LinearSpec{}), "linear");
  EXPECT_EQ(name_of(ParameterKind::weight), "weight");
  EXPECT_EQ(name_of(ParameterKind::variance), "variance");
}

TEST(LayerSpec, RefusesAWindowLargerThanTheImageOnEitherAxis) {
  expect_refused(Conv2dSpec{8, 10, 1, 0}, kImage, "conv2d", "10x10", "3x9x11", "smaller kernel");
  expect_refused(Conv2dSpec{8, 8, 1, 1}, {3, 9, 5}, "conv2d", "8x8", "3x9x5", "padding 1");
  expect_refused(Pool2dSpec{Pooling::max, 10, 2}, kImage, "max-pool2d", "10x10", "3x9x11");
  expect_refused(Pool2dSpec{Pooling::average, 2, 2}, {3, 1, 1}, "average-pool2d", "2x2", "3x1x1");
}

TEST(LayerSpec, RefusesImpossibleExtents) {
  expect_refused(Conv2dSpec{0, 3}, kImage, "conv2d", "channels is 0");
  expect_refused(Conv2dSpec{8, 0}, kImage, "conv2d", "kernel is 0");
  expect_refused(Conv2dSpec{8, 3, 0}, kImage, "conv2d", "stride is 0");
  expect_refused(Conv2dSpec{8, 3, 1, -1}, kImage, "conv2d", "padding is -1");
  expect_refused(Conv2dSpec{8, 3, 1, 3}, kImage, "conv2d", "padding 3", "kernel 3");
  expect_refused(Pool2dSpec{Pooling::max, 0, 2}, kImage, "max-pool2d", "kernel is 0");
  expect_refused(Pool2dSpec{Pooling::max, 2, 0}, kImage, "max-pool2d", "stride is 0");
  expect_refused(LinearSpec{0}, kImage, "linear", "units is 0");
}

TEST(LayerSpec, RefusesHugeExtentsBeforeTheyOverflow) {
  constexpr std::int64_t kHuge = std::int64_t{1} << 62;
  expect_refused(Conv2dSpec{8, kHuge, 1, kHuge - 1}, kImage, "conv2d", "kernel");
  expect_refused(LinearSpec{kHuge}, kImage, "linear", "units");
  constexpr std::int64_t kWide = std::int64_t{1} << 29;
  expect_refused(Conv2dSpec{kWide, 1}, {1, kWide, kWide}, "too many elements");
}

TEST(LayerSpec, RefusesInputsThatDoNotFit) {
  expect_refused(Conv2dSpec{8, 3}, Shape{100}, "conv2d", "100", "image");
  expect_refused(Pool2dSpec{Pooling::max, 2, 2}, Shape{100}, "max-pool2d", "100", "image");
  expect_refused(Conv2dSpec{8, 3}, {0, 9, 9}, "conv2d", "0x9x9");
  expect_refused(LinearSpec{10}, {3, 0, 9}, "linear", "3x0x9");
  expect_refused(LinearSpec{10}, Shape{}, "linear", "scalar");
}

TEST(LayerSpec, ParametersAndMultiplyAddsRefuseTheSameSpecs) {
  EXPECT_THROW(parameters(Conv2dSpec{8, 10}, kImage), Error);
  EXPECT_THROW(multiply_adds(Conv2dSpec{8, 10}, kImage), Error);
}

}  // namespace
}  // namespace tutti
