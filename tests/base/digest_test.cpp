#include "tutti/base/digest.hpp"

#include <gtest/gtest.h>

#include <bit>
#include <cstdint>
#include <span>
#include <vector>

namespace tutti {
namespace {

TEST(Digest, OfAnEmptyTensorIsZero) { EXPECT_EQ(digest("w", std::span<const float>{}), 0u); }

TEST(Digest, FollowsTheWrittenFormula) {
  const std::vector<std::int64_t> values{7, -1};
  const std::uint64_t golden = 0x9E3779B97F4A7C15u;
  const std::uint64_t expected = mix64(7 + golden + hash64("x")) + mix64(~std::uint64_t{0} + 2 * golden + hash64("x"));
  EXPECT_EQ(digest("x", std::span<const std::int64_t>(values)), expected);
}

TEST(Digest, DependsOnNameOrderAndTheSignOfZero) {
  const std::vector<float> values{1.0f, 2.0f, 0.0f};
  const std::vector<float> swapped{2.0f, 1.0f, 0.0f};
  const std::vector<float> negated{1.0f, 2.0f, -0.0f};
  const auto of = [](const char* name, const std::vector<float>& v) { return digest(name, std::span<const float>(v)); };
  EXPECT_NE(of("a", values), of("b", values));
  EXPECT_NE(of("a", values), of("a", swapped));
  EXPECT_NE(of("a", values), of("a", negated));
}

TEST(Digest, OfALongTensorIsTheSumOverItsPieces) {
  const std::vector<std::uint8_t> values{5, 0, 255, 7, 9};
  const std::span<const std::uint8_t> all(values);
  EXPECT_EQ(digest("x", all), digest("x", all.first(2)) + digest("x", all.subspan(2), 2));
}

// A processor may take any number of elements at once.
TEST(Digest, OfAnyLengthIsTheSumOverItsElements) {
  std::vector<float> values;
  for (int i = 0; i < 100; ++i) values.push_back(0.37f * static_cast<float>(i) - 11);
  std::uint64_t sum = 0;
  for (std::size_t i = 0; i < values.size(); ++i) {
    EXPECT_EQ(digest("x", std::span<const float>(values).first(i)), sum) << i;
    sum += mix64(std::bit_cast<std::uint32_t>(values[i]) + (i + 1) * 0x9E3779B97F4A7C15u + hash64("x"));
  }
}

TEST(Digest, IsPrintedAsSixteenDigits) { EXPECT_EQ(digest_text(0xABCu), "0000000000000abc"); }

}  // namespace
}  // namespace tutti
