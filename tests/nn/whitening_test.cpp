#include "tutti/nn/whitening.hpp"

#include "tutti/base/error.hpp"
#include "tutti/base/random.hpp"
#include "tutti/nn/network.hpp"

#include "support/reports.hpp"
#include "support/thrown.hpp"

#include <gmock/gmock.h>

#include <string>
#include <vector>

namespace tutti {
namespace {

// Neighboring pixels are correlated.
std::vector<float> smooth_image(std::int64_t values, std::uint32_t number) {
  std::vector<double> drawn(static_cast<std::size_t>(values));
  first_uniforms(1, {.item = 0, .when = number, .purpose = random_purpose("image")}, drawn);
  std::vector<float> image(drawn.begin(), drawn.end());
  for (std::size_t i = 1; i < image.size(); ++i) image[i] = 0.7f * image[i - 1] + image[i];
  return image;
}

TEST(Whitening, GivesOutputsWithoutCorrelationThatAreFollowedByTheirNegatives) {
  const Shape shape{2, 9, 8};
  constexpr std::size_t kPatch = 2 * 2 * 2;
  PatchCovariance covariance(shape, 2);
  std::vector<std::vector<float>> patches;
  for (std::uint32_t number = 0; number < 20; ++number) {
    const std::vector<float> image = smooth_image(shape.elements(), number);
    covariance.add(image);
    for (std::size_t pixel = 0; pixel < 8 * 8; ++pixel) {  // of all rows but the last
      if (pixel % 8 == 7) continue;
      std::vector<float>& patch = patches.emplace_back();
      for (std::size_t i = 0; i < kPatch; ++i) patch.push_back(image[i / 4 * 72 + pixel + i / 2 % 2 * 8 + i % 2]);
    }
  }
  const std::vector<float> weight = covariance.whitening(2 * kPatch);
  ASSERT_EQ(weight.size(), 2 * kPatch * kPatch);
  for (std::size_t i = 0; i < weight.size() / 2; ++i) EXPECT_EQ(weight[i + weight.size() / 2], -weight[i]);
  const auto count = static_cast<double>(patches.size());
  std::vector<double> means(kPatch);
  std::vector<double> products(kPatch * kPatch);
  for (const auto& patch : patches) {
    std::vector<double> outputs(kPatch);
    for (std::size_t i = 0; i < kPatch * kPatch; ++i) outputs[i / kPatch] += double{weight[i]} * patch[i % kPatch];
    for (std::size_t i = 0; i < kPatch; ++i) means[i] += outputs[i] / count;
    for (std::size_t i = 0; i < kPatch * kPatch; ++i) {
      products[i] += outputs[i / kPatch] * outputs[i % kPatch] / count;
    }
  }
  for (std::size_t i = 0; i < kPatch * kPatch; ++i) {
    const double got = products[i] - means[i / kPatch] * means[i % kPatch];
    if (i / kPatch != i % kPatch) {
      EXPECT_NEAR(got, 0, 1e-5) << i;
    } else {
      EXPECT_GT(got, 0.9) << i;
      EXPECT_LT(got, 1) << i;
    }
  }
  // The half with the largest eigenvalues comes first.
  const std::vector<float> fewer = covariance.whitening(kPatch);
  EXPECT_EQ(std::vector<float>(fewer.begin(), fewer.begin() + 4 * kPatch),
            std::vector<float>(weight.begin(), weight.begin() + 4 * kPatch));
}

TEST(Whitening, IsOnlyForConvolutionsOfTheImage) {
  const auto refusal = [](const LayerSpec& spec, const std::string& input) {
    std::vector<LayerNode> layers{{"a", Conv2dSpec{3, 1}}, {"b", spec, input}, {"c", AddSpec{}, "", "a"}};
    layers[1].initializer = LayerInitializer::whitening;
    layers.push_back({"head", LinearSpec{.units = kUnitsFromClasses}});
    return std::string(thrown_by([&] { Network({"n", {}, layers}, Shape{1, 4, 4}, 3); }).what());
  };
  const char* const why =
      "layer b: init = \"whitening\" is for convolutions of the image with an even number of "
      "channels, here at most ";
  EXPECT_THAT(refusal(Conv2dSpec{3, 1}, "image"), mentions(why));
  EXPECT_THAT(refusal(Conv2dSpec{3, 3, 1, 1}, ""), mentions(why));
  for (const Conv2dSpec& spec : {Conv2dSpec{.channels = 2, .kernel = 2, .padding = 1, .dilation = 3},
                                 Conv2dSpec{.channels = 2, .kernel = 5, .padding = 2}}) {
    std::vector<LayerNode> layers{{"b", spec}, {"head", LinearSpec{.units = kUnitsFromClasses}}};
    layers[0].initializer = LayerInitializer::whitening;
    EXPECT_THAT(thrown_by([&] { Network({"n", {}, layers}, Shape{1, 4, 4}, 3); }).what(), mentions(why));
  }
}

}  // namespace
}  // namespace tutti
