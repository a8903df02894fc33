#include "tutti/base/digest.hpp"
#include "tutti/data/open_data.hpp"

#include "data/written_sets.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>
#include <vector>

namespace tutti {
namespace {

constexpr std::size_t kGlyphPixels = 28 * 28;
constexpr std::size_t kClasses = 10;

using testing_support::Contents;
using testing_support::contents_of;
using testing_support::open_named;

std::span<const std::uint8_t> image_of(const Contents& samples, std::size_t i) {
  return std::span(samples.images).subspan(i * kGlyphPixels, kGlyphPixels);
}

TEST(Glyphs, HaveTheSamePixelsOnEveryMachine) {
  const OwnedData data = open_named("glyphs");
  EXPECT_EQ(data.pair.train->info().samples, 20'000);
  EXPECT_EQ(data.pair.test->info().samples, 4'000);
  EXPECT_EQ(data.pair.train->info().image, (Shape{1, 28, 28}));
  EXPECT_EQ(data.pair.train->info().class_names[7], "7");
  EXPECT_EQ(digest_text(data.pair.train->digest()), "38f6b4b29cbe444d");
  EXPECT_EQ(digest_text(data.pair.test->digest()), "6463d306e1f2f8ac");
}

TEST(Glyphs, HoldEachDigitEquallyOftenInMixedOrder) {
  const OwnedData data = open_named("glyphs");
  const Contents train = contents_of(*data.pair.train);
  const Contents test = contents_of(*data.pair.test);
  for (std::int32_t digit = 0; digit < 10; ++digit) {
    EXPECT_EQ(std::count(train.labels.begin(), train.labels.end(), digit), 2'000);
    EXPECT_EQ(std::count(test.labels.begin(), test.labels.end(), digit), 400);
  }
  EXPECT_FALSE(std::equal(train.labels.begin(), train.labels.begin() + 10, train.labels.begin() + 10));
}

// Softmax regression by stochastic gradient descent, one sample at a time.
class LinearModel {
 public:
  std::array<float, kClasses> probabilities(std::span<const std::uint8_t> image) const {
    std::array<float, kClasses> values{};
    for (std::size_t c = 0; c < kClasses; ++c) {
      float sum = biases_[c];
      for (std::size_t p = 0; p < kGlyphPixels; ++p)
        sum += weights_[c * kGlyphPixels + p] * (static_cast<float>(image[p]) / 255);
      values[c] = sum;
    }
    const float most = *std::max_element(values.begin(), values.end());
    for (float& value : values) value = std::exp(value - most);
    const float total = std::accumulate(values.begin(), values.end(), 0.0f);
    for (float& value : values) value /= total;
    return values;
  }

  void learn(std::span<const std::uint8_t> image, std::int32_t label, float rate) {
    auto gradient = probabilities(image);
    gradient[static_cast<std::size_t>(label)] -= 1;
    for (std::size_t c = 0; c < kClasses; ++c) {
      const float factor = rate * gradient[c];
      for (std::size_t p = 0; p < kGlyphPixels; ++p)
        weights_[c * kGlyphPixels + p] -= factor * (static_cast<float>(image[p]) / 255);
      biases_[c] -= factor;
    }
  }

 private:
  std::vector<float> weights_ = std::vector<float>(kClasses * kGlyphPixels);
  std::array<float, kClasses> biases_{};
};

TEST(Glyphs, AreLearnedByALinearModelInPartOnly) {
  const OwnedData data = open_named("glyphs");
  const Contents train = contents_of(*data.pair.train);
  const Contents test = contents_of(*data.pair.test);
  LinearModel model;
  for (const float rate : {0.01f, 0.005f, 0.002f}) {
    for (std::size_t i = 0; i < train.labels.size(); ++i) model.learn(image_of(train, i), train.labels[i], rate);
  }
  int correct = 0;
  for (std::size_t i = 0; i < test.labels.size(); ++i) {
    const auto values = model.probabilities(image_of(test, i));
    if (std::max_element(values.begin(), values.end()) - values.begin() == test.labels[i]) ++correct;
  }
  const double accuracy = correct / 4000.0;
  EXPECT_GT(accuracy, 0.55);
  EXPECT_LT(accuracy, 0.90);
}

}  // namespace
}  // namespace tutti
