#include "tutti/base/random.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>
#include <vector>

namespace tutti {
namespace {

using Words = std::array<std::uint32_t, 4>;

// The known answers that the generator's authors publish.
TEST(Random, PhiloxGivesThePublishedAnswers) {
  EXPECT_EQ(philox(0, {0, 0, 0, 0}), (Words{0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8}));
  EXPECT_EQ(philox(~0ull, {~0u, ~0u, ~0u, ~0u}), (Words{0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD}));
  EXPECT_EQ(philox(0x299F31D0A4093822ull, {0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344}),
            (Words{0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1}));
}

TEST(Random, SequencesOfDifferentItemsDiffer) {
  RandomSequence one(1, {.item = 1, .purpose = random_purpose("a")});
  RandomSequence two(1, {.item = 2, .purpose = random_purpose("a")});
  RandomSequence other(1, {.item = 1, .purpose = random_purpose("b")});
  const auto first = one.next();
  EXPECT_NE(first, two.next());
  EXPECT_NE(first, other.next());
}

TEST(Random, BoundedNumbersAreUniform) {
  RandomSequence random(3, {});
  std::vector<int> counts(7);
  constexpr int kDraws = 70000;
  for (int i = 0; i < kDraws; ++i) ++counts[random.below(7)];
  for (const int count : counts) EXPECT_NEAR(count, kDraws / 7, 500);
}

TEST(Random, NormalNumbersHaveMeanZeroAndDeviationOne) {
  double sum = 0;
  double squares = 0;
  constexpr int kDraws = 100000;
  RandomSequence random(5, {});
  for (int i = 0; i < kDraws; ++i) {
    const double x = random.normal();
    sum += x;
    squares += x * x;
  }
  EXPECT_NEAR(sum / kDraws, 0, 0.02);
  EXPECT_NEAR(squares / kDraws, 1, 0.02);
}

// By the first two even central moments of the beta distribution.
TEST(Random, BetaNumbersHaveTheirMoments) {
  for (const double shape : {0.05, 0.2, 1.0, 5.0}) {
    constexpr int kDraws = 40000;
    RandomSequence random(5, {});
    double sum = 0;
    double squares = 0;
    double fourths = 0;
    for (int i = 0; i < kDraws; ++i) {
      const double x = random.beta(shape) - 0.5;
      ASSERT_LE(std::abs(x), 0.5);
      sum += x;
      squares += x * x;
      fourths += x * x * x * x;
    }
    EXPECT_NEAR(sum / kDraws, 0, 0.012) << shape;
    EXPECT_NEAR(squares / kDraws, 0.25 / (2 * shape + 1), 0.003) << shape;
    EXPECT_NEAR(fourths / kDraws, 0.1875 / ((2 * shape + 1) * (2 * shape + 3)), 0.001) << shape;
  }
}

TEST(Random, RowsOfSequencesEqualEachSequence) {
  constexpr std::uint64_t kSeed = 0x0123456789ABCDEFull;
  for (const std::size_t count : {0u, 1u, 63u, 64u, 200u}) {
    const RandomCounter start{.draw = 2, .item = 0xFFFFFFC0u, .when = 5, .purpose = 7};  // items wrap around
    std::vector<double> uniforms(count);
    std::vector<double> normals(count);
    first_uniforms(kSeed, start, uniforms);
    first_normals(kSeed, start, normals);
    for (std::size_t i = 0; i < count; ++i) {
      RandomCounter of_item = start;
      of_item.item += static_cast<std::uint32_t>(i);
      EXPECT_EQ(uniforms[i], RandomSequence(kSeed, of_item).uniform()) << i;
      EXPECT_EQ(normals[i], RandomSequence(kSeed, of_item).normal()) << i;
    }
  }
}

TEST(Random, ShufflesReachEveryOrderEquallyOften) {
  std::map<std::vector<std::int64_t>, int> seen;
  constexpr int kShuffles = 24000;
  for (std::uint32_t i = 0; i < kShuffles; ++i) {
    std::vector<std::int64_t> values(4);
    std::iota(values.begin(), values.end(), 0);
    RandomSequence random(11, {.when = i});
    shuffle(values, random);
    ++seen[values];
  }
  EXPECT_EQ(seen.size(), 24u);
  for (const auto& [order, count] : seen) EXPECT_NEAR(count, kShuffles / 24, 160);
}

}  // namespace
}  // namespace tutti
