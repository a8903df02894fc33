#include "data/image_operations.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <numeric>
#include <vector>

namespace tutti {
namespace {

constexpr int kBins = 31;

// A picture of bytes from 20 to 219.
std::vector<std::uint8_t> picture(const Shape& shape) {
  std::vector<std::uint8_t> pixels;
  for (std::int64_t i = 0; i < shape.elements(); ++i) {
    pixels.push_back(static_cast<std::uint8_t>(20 + (i * i * 7 + i * 13) / 16 % 200));
  }
  return pixels;
}

std::uint32_t checksum(const Shape& shape, Operation kind) {
  std::uint32_t sum = 0;
  std::uint32_t factor = 1;
  for (int bin = 0; bin < kBins; ++bin) {
    for (const bool negative : {false, true}) {
      auto pixels = picture(shape);
      apply(operation_of(kind, bin, negative), shape, pixels);
      for (const std::uint8_t pixel : pixels) sum += pixel * (factor = factor * 1664525 + 1013904223);
    }
  }
  return sum;
}

// The sums over all magnitudes and signs were computed with torchvision's operations on Pillow's images.
TEST(ImageOperations, GiveTheBytesOfTorchvisions) {
  const std::array<std::pair<Shape, std::array<std::uint32_t, 14>>, 3> expected{{
      {Shape{3, 20, 24},
       {0x6E5B7E00, 0x50C744DC, 0x2E81C647, 0x378092B8, 0x6A796BB8, 0x0EFC4062, 0x622A9234, 0x67A5EA49, 0x9F9E7D22,
        0x3663E52D, 0x9F0B72C8, 0x7BD44A28, 0xF8FAFE06, 0x62682FA6}},
      {Shape{1, 28, 28},
       {0x4594C2F8, 0x0716F2C3, 0x1B5429B2, 0xBD517072, 0xDEA90694, 0x435248F0, 0x3994AFF2, 0x4594C2F8, 0x2C64C45C,
        0x2477C666, 0x0B246EEC, 0x5F45DF8C, 0xB15508DC, 0x26CA503A}},
      {Shape{3, 17, 17},
       {0x24880C12, 0x56158515, 0x3CA68951, 0xC994EDF1, 0xA5B8D431, 0x9C6D3A6D, 0xD5478BEB, 0xBA616B86, 0xAFB5E449,
        0xB8D63D17, 0x16CA1148, 0x0DCFD447, 0x04792010, 0x91E74098}},
  }};
  for (const auto& [shape, sums] : expected) {
    for (std::size_t kind = 0; kind < sums.size(); ++kind) {
      EXPECT_EQ(checksum(shape, static_cast<Operation>(kind)), sums[kind])
          << name_of(static_cast<Operation>(kind)) << " of " << shape.text();
    }
  }
}

TEST(ImageOperations, LeaveAnImageOfOneColorAlmostAsItIs) {
  for (const Operation kind :
       {Operation::contrast, Operation::sharpness, Operation::auto_contrast, Operation::equalize}) {
    std::vector<std::uint8_t> pixels(75, 77);
    apply(operation_of(kind, 30, true), Shape{3, 5, 5}, pixels);
    EXPECT_EQ(pixels, std::vector<std::uint8_t>(75, 77)) << name_of(kind);
  }
}

TEST(ImageOperations, AreDrawnEquallyOftenWithEveryMagnitude) {
  std::map<Operation, std::map<double, int>> counts;
  constexpr int kSamples = 14 * 62 * 100;
  for (std::int64_t sample = 0; sample < kSamples; ++sample) {
    const ImageOperation operation = draw_operation(3, {.sample = sample, .epoch = sample % 3});
    ++counts[operation.kind][operation.magnitude];
  }
  ASSERT_EQ(counts.size(), 14U);
  for (const auto& [kind, magnitudes] : counts) {
    int all = 0;
    for (const auto& [magnitude, count] : magnitudes) all += count;
    EXPECT_NEAR(all, 6200, 330) << name_of(kind);
  }
  EXPECT_EQ(counts[Operation::equalize].size(), 1U);
  EXPECT_EQ(counts[Operation::posterize].size(), 7U);
  EXPECT_EQ(counts[Operation::solarize].size(), 31U);
  EXPECT_EQ(counts[Operation::rotate].size(), 61U);  // 0 has no sign
  for (const auto& [magnitude, count] : counts[Operation::rotate]) {
    EXPECT_NEAR(count, magnitude == 0 ? 200 : 100, 60) << magnitude;
  }
}

TEST(ErasedBox, IsDrawnAsOftenAsAskedWithEveryAllowedAreaAndRatio) {
  const ImageRecipe recipe{.augment = parse_augment("erase:0.25"), .image = Shape{1, 1000, 1000}, .statistics = {}};
  constexpr int kSamples = 20'000;
  std::vector<double> areas;
  std::vector<double> ratios;
  int low = 0;
  for (std::int64_t sample = 0; sample < kSamples; ++sample) {
    const auto [rows, columns] = draw_erased(recipe, {.sample = sample, .epoch = sample % 3});
    if (rows.size() == 0) continue;
    ASSERT_TRUE(rows.begin >= 0 && rows.end <= 1000 && columns.begin >= 0 && columns.end <= 1000);
    areas.push_back(static_cast<double>(rows.size() * columns.size()) / 1e6);
    ratios.push_back(std::log(static_cast<double>(rows.size()) / static_cast<double>(columns.size())));
    low += rows.begin + rows.end > 1000 ? 1 : 0;
  }
  const auto drawn = static_cast<double>(areas.size());
  EXPECT_NEAR(drawn, kSamples / 4, 250);
  EXPECT_NEAR(low / drawn, 0.5, 0.03);
  const auto mean = [&](const std::vector<double>& of) { return std::accumulate(of.begin(), of.end(), 0.0) / drawn; };
  const auto [smallest, largest] = std::ranges::minmax(areas);
  EXPECT_NEAR(smallest, 0.02, 0.001);
  EXPECT_NEAR(largest, 0.33, 0.001);
  EXPECT_NEAR(mean(areas), 0.175, 0.005);
  const auto [flattest, tallest] = std::ranges::minmax(ratios);
  EXPECT_NEAR(flattest, std::log(0.3), 0.02);
  EXPECT_NEAR(tallest, std::log(3.3), 0.02);
  EXPECT_NEAR(mean(ratios), std::log(0.3 * 3.3) / 2, 0.04);
}

}  // namespace
}  // namespace tutti
