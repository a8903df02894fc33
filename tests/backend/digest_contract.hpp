#pragma once
// Every backend's digests must be those of base/digest.hpp. The test of each backend instantiates DigestContract.

#include "tutti/base/digest.hpp"
#include "tutti/base/error.hpp"

#include "backend/device_values.hpp"

#include <gtest/gtest.h>

#include <memory>
#include <numeric>
#include <string>

namespace tutti::testing_support {

class DigestContract : public ::testing::TestWithParam<std::unique_ptr<Backend> (*)()> {
 protected:
  DigestContract() : device_(GetParam()()) {}

  template <class T>
  Tensor hold(const std::vector<T>& values, ElementType type) {
    memory_.push_back(device_.backend().allocate(values.size() * sizeof(T)));
    const Tensor tensor = memory_.back().view({std::ssize(values)}, type);
    if (!values.empty()) device_.upload(tensor, values);
    return tensor;
  }
  // Digests are added to what is there, 0 at first.
  void add(const std::vector<DigestedTensor>& tensors) {
    if (!digests_.data) digests_ = hold(std::vector<std::int64_t>(tensors.size()), ElementType::i64);
    device_.backend().add_digests(device_.stream(), tensors, digests_);
  }
  std::vector<std::uint64_t> digests() {
    const auto values = device_.download<std::int64_t>(digests_);
    return {values.begin(), values.end()};
  }

  Device device_;
  std::vector<Buffer> memory_;
  Tensor digests_;
};

// Beginnings and lengths that fill no whole number of registers, warps or blocks, and more tensors than one kernel has.
TEST_P(DigestContract, IsThatOfBaseForTensorsOfAnyLengthTypeAndOffset) {
  std::vector<DigestedTensor> tensors;
  std::vector<std::uint64_t> expected;
  for (const std::int64_t length : {0, 1, 2, 3, 7, 8, 9, 31, 64, 1000, 16383, 16384, 16385, 50003}) {
    const std::string name = "tensor/" + std::to_string(length);
    const auto floats = random_floats(length + 5, name);
    const Tensor whole = hold(floats, ElementType::f32);
    std::vector<std::int32_t> words;
    std::vector<std::int64_t> longs;
    for (const float value : floats) {
      words.push_back(static_cast<std::int32_t>(value * 0x1p31));
      longs.push_back(static_cast<std::int64_t>(value * 0x1p63));
    }
    for (const std::int64_t first : {0, 1, 3, 4, 5}) {
      tensors.push_back({elements_of(whole, {first, first + length}), digest_start(name)});
      expected.push_back(
          digest(name, std::span(floats).subspan(static_cast<std::size_t>(first), static_cast<std::size_t>(length))));
    }
    tensors.push_back({hold(words, ElementType::i32), digest_start("words")});
    expected.push_back(digest("words", std::span<const std::int32_t>(words)));
    tensors.push_back({hold(longs, ElementType::i64), digest_start("longs")});
    expected.push_back(digest("longs", std::span<const std::int64_t>(longs)));
  }
  add(tensors);
  EXPECT_EQ(digests(), expected);
  add(tensors);
  for (std::uint64_t& each : expected) each *= 2;
  EXPECT_EQ(digests(), expected);
}

TEST_P(DigestContract, OfPiecesAddUpToThatOfTheTensor) {
  const auto values = random_floats(40'001, "pieces");
  const Tensor whole = hold(values, ElementType::f32);
  std::vector<DigestedTensor> pieces;
  for (std::int64_t at = 0, length = 1; at < std::ssize(values); at += length, length = length * 3 + 1) {
    const std::int64_t count = std::min(length, std::ssize(values) - at);
    pieces.push_back({elements_of(whole, {at, at + count}), digest_start("pieces", static_cast<std::uint64_t>(at))});
  }
  add(pieces);
  const auto sums = digests();
  EXPECT_EQ(std::accumulate(sums.begin(), sums.end(), std::uint64_t{0}),
            digest("pieces", std::span<const float>(values)));
}

TEST_P(DigestContract, RefusesOtherTypesAndAnotherNumberOfDigests) {
  const Tensor values = hold(std::vector<float>(8), ElementType::f32);
  const Tensor doubles{values.data, {4}, ElementType::f64, values.space};
  const Tensor digests = hold(std::vector<std::int64_t>(2), ElementType::i64);
  const std::vector<DigestedTensor> other_type{{values, 0}, {doubles, 0}};
  const std::vector<DigestedTensor> other_number{{values, 0}};
  EXPECT_THROW(device_.backend().add_digests(device_.stream(), other_type, digests), Error);
  EXPECT_THROW(device_.backend().add_digests(device_.stream(), other_number, digests), Error);
}

}  // namespace tutti::testing_support
