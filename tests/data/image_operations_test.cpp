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

// Of what these operations make of a picture.
std::uint32_t checksum(const Shape& shape, const std::vector<ImageOperation>& operations) {
  std::uint32_t sum = 0;
  std::uint32_t factor = 1;
  for (const ImageOperation& operation : operations) {
    auto pixels = picture(shape);
    apply(operation, shape, pixels);
    for (const std::uint8_t pixel : pixels) sum += pixel * (factor = factor * 1664525 + 1013904223);
  }
  return sum;
}

std::vector<ImageOperation> of_all_bins(Operation kind, Magnitudes range, const Shape& shape) {
  std::vector<ImageOperation> operations;
  for (int bin = 0; bin < kBins; ++bin) {
    for (const bool negative : {false, true}) {
      operations.push_back(operation_of(kind, bin, negative, range, shape));
    }
  }
  return operations;
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
      EXPECT_EQ(checksum(shape, of_all_bins(static_cast<Operation>(kind), Magnitudes::wide, shape)), sums[kind])
          << name_of(static_cast<Operation>(kind)) << " of " << shape.text();
    }
  }
}

TEST(ImageOperations, GiveTheBytesOfTorchvisionsRandAugmentAndHue) {
  struct Expected {
    Shape shape;
    std::array<std::uint32_t, 14> sums;
    std::uint32_t of_hues;
  };
  const std::array<Expected, 3> expected{{
      {Shape{3, 20, 24},
       {0x6E5B7E00, 0xB5AE6FBD, 0x3E25942D, 0x85F5941A, 0x26A293E0, 0xB1E14BCA, 0xF9D37678, 0xBB420D85, 0xAC78F33F,
        0x8D1BE766, 0x1C799D48, 0x7BD44A28, 0xF8FAFE06, 0x62682FA6},
       0x0F17541A},
      {Shape{1, 28, 28},
       {0x4594C2F8, 0xAABE0223, 0xEC1E7AF4, 0xB0FB3D46, 0x41D76F1B, 0x61BEA990, 0x83927F43, 0x4594C2F8, 0xBC81B413,
        0x788096F5, 0xD535D6C8, 0x5F45DF8C, 0xB15508DC, 0x26CA503A},
       0xAC37BADC},
      {Shape{3, 17, 17},
       {0x24880C12, 0x169563DD, 0xC9D97C01, 0x4EAAB61B, 0x83456E56, 0xB8C54B01, 0x3E9EF5E7, 0xA7362445, 0x27A135F1,
        0x6B00C1EF, 0x6B969CA0, 0x0DCFD447, 0x04792010, 0x91E74098},
       0x955A5547},
  }};
  for (const auto& [shape, sums, of_hues] : expected) {
    for (std::size_t kind = 0; kind < sums.size(); ++kind) {
      const auto operation = static_cast<Operation>(kind);
      EXPECT_EQ(checksum(shape, of_all_bins(operation, Magnitudes::rand_augment, shape)), sums[kind])
          << name_of(operation) << " of " << shape.text();
    }
    std::vector<ImageOperation> hues;
    for (int k = -20; k <= 20; ++k) hues.push_back({Operation::hue, k / 40.0});
    EXPECT_EQ(checksum(shape, hues), of_hues) << shape.text();
  }
}

TEST(ImageOperations, LeaveAnImageOfOneColorAlmostAsItIs) {
  for (const Operation kind :
       {Operation::contrast, Operation::sharpness, Operation::auto_contrast, Operation::equalize}) {
    std::vector<std::uint8_t> pixels(75, 77);
    apply(operation_of(kind, 30, true, Magnitudes::wide, Shape{3, 5, 5}), Shape{3, 5, 5}, pixels);
    EXPECT_EQ(pixels, std::vector<std::uint8_t>(75, 77)) << name_of(kind);
  }
}

TEST(ImageOperations, AreDrawnEquallyOftenWithEveryMagnitude) {
  std::map<Operation, std::map<double, int>> counts;
  constexpr int kSamples = 14 * 62 * 100;
  for (std::int64_t sample = 0; sample < kSamples; ++sample) {
    const ImageOperation operation =
        draw_operations(parse_augment("trivial"), 3, {.sample = sample, .epoch = sample % 3}, Shape{3, 8, 8}).front();
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

TEST(ImageOperations, RotateByAnyAngleAndJitterInAnyOrder) {
  const Augment augment = parse_augment("rotate:30,jitter:0.4/2/0/0.1,randaugment:2/9");
  std::array<std::pair<double, double>, 15> range;
  range.fill({1e9, -1e9});
  std::map<std::vector<Operation>, int> orders;
  constexpr int kSamples = 12'000;
  for (std::int64_t sample = 0; sample < kSamples; ++sample) {
    const auto operations = draw_operations(augment, 3, {.sample = sample}, Shape{3, 8, 8});
    ASSERT_EQ(operations.size(), 7U);
    EXPECT_EQ(operations[0].kind, Operation::rotate);
    std::vector<Operation> order;
    for (std::size_t i = 0; i < 5; ++i) {
      const auto& [kind, magnitude] = operations[i];
      auto& [least, most] = range[static_cast<std::size_t>(kind)];
      least = std::min(least, magnitude);
      most = std::max(most, magnitude);
      if (i > 0 && kind != Operation::identity) order.push_back(kind);
    }
    ++orders[order];
  }
  const auto expect_range = [&](Operation kind, double least, double most) {
    EXPECT_NEAR(range[static_cast<std::size_t>(kind)].first, least, 0.01) << name_of(kind);
    EXPECT_NEAR(range[static_cast<std::size_t>(kind)].second, most, 0.01) << name_of(kind);
  };
  expect_range(Operation::rotate, -30, 30);
  expect_range(Operation::brightness, -0.4, 0.4);
  expect_range(Operation::contrast, -1, 2);
  expect_range(Operation::hue, -0.1, 0.1);
  EXPECT_EQ(orders.size(), 6U);
  for (const auto& [order, count] : orders) EXPECT_NEAR(count, kSamples / 6, 200);
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
