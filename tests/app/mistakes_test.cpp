#include "mistakes.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <vector>

namespace tutti {
namespace {

TEST(Mistakes, KeepTheMostConfidentOfMany) {
  Mistakes mistakes(3);
  std::vector<float> logits;
  std::vector<SampleScore> samples;
  for (int i = 0; i < 50; ++i) {
    const double probability = 0.5 + 0.01 * ((i * 37) % 50);
    logits.insert(logits.end(), {0, static_cast<float>(std::log(1 / probability - 1))});
    samples.push_back({.exponentials = 1 / probability, .label = i % 5 == 0 ? 0 : 1, .predicted = 0});
  }
  mistakes.add({.first = 100, .classes = 2, .samples = samples, .logits = logits});
  const std::vector<Mistake> sorted = mistakes.sorted();
  ASSERT_EQ(sorted.size(), 3u);
  EXPECT_EQ(sorted[0].sample, 127);
  EXPECT_NEAR(sorted[0].probability, 0.99, 1e-6);
  EXPECT_NEAR(sorted[0].probability_of_label, 0.01, 1e-6);
  EXPECT_NEAR(sorted[1].probability, 0.98, 1e-6);
  EXPECT_NEAR(sorted[2].probability, 0.97, 1e-6);
}

TEST(SmallPng, HasNoSideThatIsLonger) {
  std::vector<std::uint8_t> pixels(3 * 300 * 100, 100);
  const auto big_endian = [](const std::vector<std::byte>& png, std::size_t at) {
    return std::to_integer<int>(png[at + 2]) * 256 + std::to_integer<int>(png[at + 3]);
  };
  const auto large = small_png({pixels.data(), {3, 300, 100}}, 160);
  EXPECT_EQ(big_endian(large, 16), 50);
  EXPECT_EQ(big_endian(large, 20), 150);
  EXPECT_EQ(std::to_integer<int>(large[25]), 2) << "RGB";
  const auto odd = small_png({pixels.data(), {2, 7, 161}}, 160);
  EXPECT_EQ(big_endian(odd, 16), 81);
  EXPECT_EQ(big_endian(odd, 20), 4);
  EXPECT_EQ(std::to_integer<int>(odd[25]), 0) << "gray";
}

}  // namespace
}  // namespace tutti
