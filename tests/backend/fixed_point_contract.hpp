#pragma once
// Tests of every backend's integer sums. The test of each backend instantiates FixedPointContract.

#include "tutti/base/error.hpp"

#include "backend/device_values.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <limits>
#include <memory>
#include <numeric>

namespace tutti::testing_support {

using Floats = std::vector<float>;
using Steps = std::vector<std::int64_t>;

inline constexpr float kSmallestNormal = std::numeric_limits<float>::min();
inline constexpr float kDenormal = std::numeric_limits<float>::denorm_min();

inline std::int64_t steps_of(float value, int exponent) { return std::llrint(std::ldexp(double{value}, exponent)); }
inline std::int32_t bits_of(float value) { return std::bit_cast<std::int32_t>(std::abs(value)); }

// One block in a backend's memory, with its grid. Its sums are initially random.
class FixedPointBlock {
 public:
  struct Slice {
    std::int64_t length = 0;
    std::int32_t exponent = 0;
  };

  FixedPointBlock(Device& device, const std::vector<Slice>& slices, ElementType sums = ElementType::i64)
      : device_(device), type_(sums) {
    Steps ends;
    std::vector<std::int32_t> exponents;
    for (const Slice& slice : slices) {
      ends.push_back(length_ += slice.length);
      exponents.push_back(slice.exponent);
    }
    grid_ = {hold(ends, ElementType::i64), hold(exponents, ElementType::i32)};
    largest_ = hold(std::vector<std::int32_t>(slices.size()), ElementType::i32);
    set_sums(Steps(static_cast<std::size_t>(length_), -77));
  }

  void set_sums(const Steps& sums) {
    sums_ = type_ == ElementType::i64 ? hold(sums, type_)
                                      : hold(std::vector<std::int32_t>(sums.begin(), sums.end()), type_);
  }
  void add(const Floats& values, bool first) { add(values, first, 0, length_); }
  // Elements begin .. end - 1 of the block's values.
  void add(const Floats& values, bool first, std::int64_t begin, std::int64_t end) {
    const Tensor all = hold(values, ElementType::f32);
    device_.backend().to_fixed_point(
        device_.stream(), grid_,
        {elements_of(all, {begin, end}), elements_of(sums_, {begin, end}), begin, first, largest_});
    device_.stream().synchronize();
    memory_.pop_back();
  }
  void read(const Tensor& values, std::int64_t begin, std::int64_t end) {
    device_.backend().from_fixed_point(device_.stream(), grid_,
                                       {elements_of(sums_, {begin, end}), elements_of(values, {begin, end}), begin});
  }
  Floats values() {
    const Tensor values = room();
    read(values, 0, length_);
    return device_.download<float>(values);
  }

  Tensor room() { return hold(Floats(static_cast<std::size_t>(length_), kNan), ElementType::f32); }
  Steps sums() {
    if (type_ == ElementType::i64) return device_.download<std::int64_t>(sums_);
    const std::vector<std::int32_t> sums = device_.download<std::int32_t>(sums_);
    return {sums.begin(), sums.end()};
  }
  std::vector<std::int32_t> largest() { return device_.download<std::int32_t>(largest_); }

 private:
  template <class T>
  Tensor hold(const std::vector<T>& values, ElementType type) {
    memory_.push_back(device_.backend().allocate(values.size() * sizeof(T)));
    const Tensor tensor = memory_.back().view({static_cast<std::int64_t>(values.size())}, type);
    device_.upload(tensor, values);
    return tensor;
  }

  Device& device_;
  ElementType type_;
  std::vector<Buffer> memory_;
  std::int64_t length_ = 0;
  FixedPointGrid grid_;
  Tensor sums_;
  Tensor largest_;
};

class FixedPointContract : public ::testing::TestWithParam<std::unique_ptr<Backend> (*)()> {
 protected:
  FixedPointContract() : device_(GetParam()()) {}

  FixedPointBlock block(const std::vector<FixedPointBlock::Slice>& slices) { return {device_, slices}; }
  FixedPointBlock block(std::size_t length, std::int32_t exponent) {
    return block({{static_cast<std::int64_t>(length), exponent}});
  }

  Device device_;
};

TEST_P(FixedPointContract, RoundsToTheNearestStepAndTiesToEven) {
  struct Case {
    std::int32_t exponent;
    Floats values;
    Steps steps;
  };
  const std::vector<Case> cases{
      {2,
       {0.125f, 0.375f, 0.625f, -0.125f, -0.375f, -0.625f, 0.13f, -0.13f, 3, 0, -0.0f},
       {0, 2, 2, 0, -2, -2, 1, -1, 12, 0, 0}},
      {-3, {4, 12, 20, 4.5f, -4.5f, 3.5f}, {0, 2, 2, 1, -1, 0}},
      {0,
       {0x1.fffffep61f, -0x1.fffffep61f, 0x1.000002p31f, -0x1p32f, 0x1.8p52f, 0x1p51f, -0x1p61f},
       {0x3fffffc000000000, -0x3fffffc000000000, 0x80000100, -0x100000000, 0x18000000000000, 0x8000000000000,
        -0x2000000000000000}},
      {900, {0, -0.0f}, {0, 0}},
      {-900, {1e38f, -1e38f}, {0, 0}}};
  for (const Case& each : cases) {
    FixedPointBlock sums = block(each.values.size(), each.exponent);
    sums.add(each.values, true);
    EXPECT_EQ(sums.sums(), each.steps) << each.exponent;
    Steps twice = each.steps;
    for (std::int64_t& steps : twice) steps *= 2;
    sums.add(each.values, false);
    EXPECT_EQ(sums.sums(), twice) << each.exponent;
  }
}

TEST_P(FixedPointContract, RoundsSumsThroughDouble) {
  const Steps sums{(1 << 24) + 1,
                   (1 << 24) + 3,
                   -(1 << 24) - 1,
                   (1LL << 53) + 1,
                   0x7fffffffffffffff,
                   -0x7fffffffffffffff - 1,
                   0,
                   -1,
                   0x100000000,
                   0xffffffff,
                   -0x100000001,
                   0x4000004000000001,
                   0x20000010000001};
  for (const std::int32_t exponent : {0, 3, -40, 80, 900, -900}) {
    FixedPointBlock block = this->block(sums.size(), exponent);
    block.set_sums(sums);
    Floats expected;
    for (const std::int64_t sum : sums) {
      const double value = std::ldexp(static_cast<double>(sum), -exponent);
      const bool small = std::abs(value) < double{kSmallestNormal};
      const bool large = std::abs(value) > 1e39;
      expected.push_back(small   ? 0
                         : large ? std::copysign(kInfinity, sum < 0 ? -1.0f : 1.0f)
                                 : static_cast<float>(value));
    }
    EXPECT_TRUE(same_bits(block.values(), expected)) << exponent;
  }
}

TEST_P(FixedPointContract, ReadsDenormalSumsAsZero) {
  FixedPointBlock sums = block({{3, 156}, {1, 126}, {1, 127}});
  sums.set_sums({1 << 30, (1 << 30) - 1, 1 - (1 << 30), -1, 1});
  EXPECT_TRUE(same_bits(sums.values(), {kSmallestNormal, 0, 0, -kSmallestNormal, 0}));
}

// A wrong write is detected only in elements that have been written before, so the order of calls is random.
TEST_P(FixedPointContract, UsesTheGridOfEachSliceWhereverCallsBeginAndEnd) {
  RandomSequence random(1, {.purpose = random_purpose("cuts")});
  std::vector<FixedPointBlock::Slice> slices;
  Floats values;
  Steps expected;
  Floats read;
  std::vector<std::int32_t> largest;
  for (const std::int64_t length : {1, 7, 64, 1, 500, 17, 16, 129, 2}) {
    const std::int32_t magnitude = random.between(-125, 120);
    slices.push_back({length, 46 - magnitude});
    largest.push_back(0);
    for (const float value : random_floats(length, "slice", std::ldexp(1.0, magnitude))) {
      values.push_back(value);
      expected.push_back(steps_of(value, slices.back().exponent));
      const double sum = std::ldexp(static_cast<double>(expected.back()), -slices.back().exponent);
      read.push_back(std::abs(sum) < double{kSmallestNormal} ? 0 : static_cast<float>(sum));
      largest.back() = std::max(largest.back(), bits_of(value));
    }
  }
  const auto count = static_cast<std::int64_t>(values.size());
  for (const std::uint32_t longest : {1U, 20U, 200U, 2000U}) {
    std::vector<std::int64_t> calls(static_cast<std::size_t>(count));
    std::iota(calls.begin(), calls.end(), 0);
    if (longest > 1) {
      calls = {0, count};  // the last one has no elements
      for (std::int64_t at = 0; (at += 1 + random.below(longest)) < count;) calls.push_back(at);
    }
    Steps starts = calls;
    std::ranges::sort(starts);
    shuffle(calls, random);
    FixedPointBlock sums = block(slices);
    const Tensor room = sums.room();
    const auto end_of = [&](std::int64_t begin) {
      const auto next = std::ranges::upper_bound(starts, begin);
      return next == starts.end() ? count : *next;
    };
    for (const std::int64_t begin : calls) sums.add(values, true, begin, end_of(begin));
    for (const std::int64_t begin : calls) sums.read(room, begin, end_of(begin));
    EXPECT_EQ(sums.sums(), expected) << longest;
    EXPECT_EQ(sums.largest(), largest) << longest;
    EXPECT_TRUE(same_bits(device_.download<float>(room), read)) << longest;
  }
}

TEST_P(FixedPointContract, RaisesTheLargestOfEachSlice) {
  FixedPointBlock sums = block({{3, 0}, {20, 0}, {1, 0}, {2, 0}});
  Floats values(26, 0.0f);
  sums.add(values, true);
  EXPECT_EQ(sums.largest(), std::vector<std::int32_t>(4));
  std::ranges::fill(values, -0.0f);
  values[1] = -3;
  values[22] = 7;
  values[25] = kDenormal;
  sums.add(values, false);
  auto largest = sums.largest();
  EXPECT_LE(largest.back(), bits_of(kDenormal));  // may count as 0
  largest.back() = 0;
  EXPECT_EQ(largest, (std::vector<std::int32_t>{bits_of(3), bits_of(7), 0, 0}));
  values[1] = -2;
  values[10] = -kInfinity;
  values[23] = std::numeric_limits<float>::max();
  values[24] = kNan;
  values[25] = kInfinity;
  sums.add(values, false);
  largest = sums.largest();
  EXPECT_GT(largest.back(), bits_of(kInfinity));
  largest.back() = 0;
  EXPECT_EQ(largest, (std::vector<std::int32_t>{bits_of(3), bits_of(kInfinity), bits_of(values[23]), 0}));
}

TEST_P(FixedPointContract, ValuesThatAreTooLargeOrNotFiniteDoNotAffectOthers) {
  const Floats spoilers{0x1p62f, -0x1p62f, 0x1p63f, 3e38f, kInfinity, -kInfinity, kNan, -kNan, 0x1p65f};
  for (std::size_t stride = 2; stride < 6; ++stride) {
    Floats values = random_floats(200, "others", 1e9);
    for (std::size_t i = 0; i < values.size(); i += stride) values[i] = spoilers[i / stride % spoilers.size()];
    FixedPointBlock sums = block(values.size(), 0);
    sums.add(values, true);
    sums.add(values, false);
    const Steps got = sums.sums();
    for (std::size_t i = 0; i < values.size(); ++i) {
      if (i % stride == 0) continue;
      ASSERT_EQ(got[i], 2 * steps_of(values[i], 0)) << i;
    }
  }
}

TEST_P(FixedPointContract, SumsOf65536PartsAtTheLimitDoNotOverflow) {
  const float limit = 0x1.fffffep46f;  // the greatest below 2^47 steps
  const auto before = std::int64_t{65535} * steps_of(limit, 0);
  FixedPointBlock sums = block(2, 0);
  sums.set_sums({before, -before});
  sums.add({limit, -limit}, false);
  EXPECT_EQ(sums.sums(), (Steps{65536 * steps_of(limit, 0), -65536 * steps_of(limit, 0)}));
  EXPECT_TRUE(same_bits(sums.values(), {65536 * limit, -65536 * limit}));
}

// The sums, values and largest values of 32 bits are those of 64, wherever calls begin and end.
TEST_P(FixedPointContract, SumsOf32BitsAreThoseOf64ThatFit) {
  RandomSequence random(2, {.purpose = random_purpose("cuts of short sums")});
  std::vector<FixedPointBlock::Slice> slices;
  for (const std::int64_t length : {3, 1, 700, 64, 129}) slices.push_back({length, random.between(20, 29)});
  FixedPointBlock long_sums(device_, slices);
  FixedPointBlock short_sums(device_, slices, ElementType::i32);
  constexpr std::int64_t kLength = 897;
  for (const char* part : {"first", "second", "third"}) {
    const bool first = part[0] == 'f';
    Floats values = random_floats(kLength, part);  // their sums are below 3 * 2^29
    values[800] = 0x1.8p-20F;                      // a tie on a grid of 2^-20
    for (std::int64_t begin = 0; begin < kLength;) {
      const std::int64_t end = std::min<std::int64_t>(kLength, begin + random.between(1, 300));
      for (FixedPointBlock* sums : {&long_sums, &short_sums}) sums->add(values, first, begin, end);
      begin = end;
    }
  }
  EXPECT_EQ(short_sums.sums(), long_sums.sums());
  EXPECT_EQ(short_sums.largest(), long_sums.largest());
  EXPECT_TRUE(same_bits(short_sums.values(), long_sums.values()));
  FixedPointBlock rounded(device_, {{6, 2}}, ElementType::i32);
  rounded.add({0.125F, 0.375F, 0.625F, -0.125F, -0.375F, -0x1p29F}, true);
  EXPECT_EQ(rounded.sums(), (Steps{0, 2, 2, 0, -2, -0x7fffffff - 1}));
  rounded.set_sums({(1 << 24) + 1, (1 << 24) + 3, -(1 << 24) - 1, 0x7fffffff, -1, 0});
  EXPECT_TRUE(same_bits(rounded.values(), {0x1p22F, 0x1.000004p22F, -0x1p22F, 0x1p29F, -0.25F, 0}));
}

TEST_P(FixedPointContract, RefusesTensorsOfLengthsThatDoNotMatch) {
  const Buffer memory = device_.backend().allocate(64);
  const FixedPointGrid grid{memory.view({2}, ElementType::i64), memory.view({2}, ElementType::i32)};
  const auto add = [&](std::int64_t values, std::int64_t largest) {
    device_.backend().to_fixed_point(device_.stream(), grid,
                                     {.values = memory.view({values}, ElementType::f32),
                                      .sums = memory.view({3}, ElementType::i64),
                                      .largest = memory.view({largest}, ElementType::i32)});
  };
  EXPECT_THROW(add(4, 2), Error);
  EXPECT_THROW(add(3, 1), Error);
  const FromFixedPoint read{memory.view({3}, ElementType::i64), memory.view({4}, ElementType::f32)};
  EXPECT_THROW(device_.backend().from_fixed_point(device_.stream(), grid, read), Error);
}

// Values of any sign, from 2^low to 2^high.
struct Drawn {
  std::size_t parts = 24;
  std::size_t elements = 150;
  int low = 0;
  int high = 0;
};

inline std::vector<Floats> drawn_parts(RandomSequence& random, const Drawn& drawn) {
  std::vector<Floats> parts(drawn.parts, Floats(drawn.elements));
  for (Floats& part : parts) {
    for (float& value : part) {
      const double magnitude = std::ldexp(1 + random.uniform(), random.between(drawn.low, drawn.high - 1));
      value = static_cast<float>(random.below(2) == 0 ? magnitude : -magnitude);
    }
  }
  return parts;
}

inline int exponent_for(const std::vector<Floats>& parts, int bits) {
  float most = 0;
  for (const Floats& part : parts) {
    for (const float value : part) most = std::max(most, std::abs(value));
  }
  return bits - std::ilogb(most);
}

inline long double sum_at(const std::vector<Floats>& parts, std::size_t element) {
  long double sum = 0;
  for (const Floats& part : parts) sum += part[element];
  return sum;
}

TEST_P(FixedPointContract, NeitherOrderNorGroupingOfThePartsChangesABit) {
  RandomSequence random(1, {.purpose = random_purpose("parts")});
  const std::pair<int, int> magnitudes[] = {{-149, 127}, {-126, 127}, {-149, -120}, {-10, 10}, {100, 127}, {-126, -90}};
  for (const auto& [low, high] : magnitudes) {
    std::vector<Floats> parts = drawn_parts(random, {.low = low, .high = high});
    const int exponent = exponent_for(parts, 46);
    Steps whole;
    for (const std::size_t ranks : {1U, 2U, 3U, 7U, 24U}) {
      Steps sums(150);
      for (std::size_t rank = 0; rank < ranks; ++rank) {
        FixedPointBlock block = this->block(150, exponent);
        const std::size_t begin = parts.size() * rank / ranks;
        const std::size_t end = parts.size() * (rank + 1) / ranks;
        for (std::size_t part = begin; part < end; ++part) block.add(parts[part], part == begin);
        const Steps share = block.sums();
        for (std::size_t i = 0; i < sums.size(); ++i) sums[i] += share[i];
      }
      if (ranks == 1) whole = sums;
      EXPECT_EQ(sums, whole) << ranks;
      std::ranges::rotate(parts, parts.begin() + 5);
      std::ranges::reverse(parts.begin(), parts.begin() + 11);
    }
    // Half a step a part; and where denormals count as 0, one of these.
    const long double step = std::ldexp(1.0L, -exponent);
    const long double apart =
        static_cast<long double>(parts.size()) * (step * 0.501L + (low < -126 ? kSmallestNormal : 0));
    for (std::size_t i = 0; i < whole.size(); ++i) {
      ASSERT_LE(std::abs(static_cast<long double>(whole[i]) * step - sum_at(parts, i)), apart) << low << ", " << i;
    }
  }
}

// All values are within 2^20 of the greatest, of up to 256 parts, with ten bits of margin and 2^62 steps in total.
TEST_P(FixedPointContract, IsNoLessPreciseThanAnyOrderOfSinglePrecision) {
  RandomSequence random(1, {.purpose = random_purpose("precision")});
  for (int low = -120; low < 90; low += 30) {
    std::vector<Floats> parts = drawn_parts(random, {.parts = 256, .elements = 40, .low = low, .high = low + 20});
    FixedPointBlock block = this->block(40, exponent_for(parts, 62 - 8 - 10 - 1));
    for (const Floats& part : parts) block.add(part, &part == parts.data());
    const Floats got = block.values();
    for (std::size_t i = 0; i < got.size(); ++i) {
      const long double exact = sum_at(parts, i);
      Floats terms;
      for (const Floats& part : parts) terms.push_back(part[i]);
      const auto expect_no_worse = [&](float sum) {
        ASSERT_LE(std::abs(got[i] - exact), std::abs(sum - exact)) << low << ", " << i;
      };
      expect_no_worse(std::accumulate(terms.begin(), terms.end(), 0.0f));
      expect_no_worse(std::accumulate(terms.rbegin(), terms.rend(), 0.0f));
      Floats tree = terms;
      for (; tree.size() > 1; tree.resize((tree.size() + 1) / 2)) {
        for (std::size_t k = 0; k < tree.size() / 2; ++k) tree[k] += tree[tree.size() - 1 - k];
      }
      expect_no_worse(tree[0]);
      std::ranges::sort(terms, {}, [](float term) { return std::abs(term); });
      expect_no_worse(std::accumulate(terms.begin(), terms.end(), 0.0f));
      for (int order = 0; order < 5; ++order) {
        std::ranges::rotate(terms, terms.begin() + 1 + random.below(20));
        expect_no_worse(std::accumulate(terms.begin(), terms.end(), 0.0f));
      }
    }
  }
}

}  // namespace tutti::testing_support
