#pragma once
// Values that ranks add in tests, and the expected sums.

#include "tutti/backend/tensor.hpp"
#include "tutti/base/bf16.hpp"
#include "tutti/base/random.hpp"

#include "comm/arguments.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <ostream>
#include <type_traits>
#include <vector>

namespace tutti {

template <class T>
constexpr ElementType element_type() {
  if (sizeof(T) == sizeof(Bf16)) return ElementType::bf16;
  if (std::is_same_v<T, float>) return ElementType::f32;
  return sizeof(T) == sizeof(std::int32_t) ? ElementType::i32 : ElementType::i64;
}

template <class T>
Tensor tensor_over(std::vector<T>& values) {
  return {.data = values.data(), .shape = {static_cast<std::int64_t>(values.size())}, .type = element_type<T>()};
}

// Small integers, whose partial sums are also exact in f32. `salt` distinguishes operations.
template <class T>
std::vector<T> whole_numbers(std::int64_t length, std::int64_t rank, std::int64_t salt) {
  std::vector<T> values(static_cast<std::size_t>(length));
  for (std::int64_t i = 0; i < length; ++i) {
    values[static_cast<std::size_t>(i)] = static_cast<T>((rank + 1) * ((i + salt) % 97 - 48));
  }
  return values;
}

template <class T>
std::vector<T> sum_of_whole_numbers(std::int64_t length, std::int64_t ranks, std::int64_t salt) {
  std::vector<T> sums = whole_numbers<T>(length, 0, salt);
  for (T& sum : sums) sum *= static_cast<T>(ranks * (ranks + 1) / 2);
  return sums;
}

// Values whose sum depends on the order of addition.
inline std::vector<float> rough_values(std::int64_t length, int rank) {
  RandomSequence random(17, {.item = static_cast<std::uint32_t>(rank), .purpose = random_purpose("rough values")});
  std::vector<float> values(static_cast<std::size_t>(length));
  for (float& value : values) value = static_cast<float>(random.normal());
  return values;
}

inline bool operator==(Bf16 one, Bf16 other) { return one.bits == other.bits; }
inline std::ostream& operator<<(std::ostream& out, Bf16 value) { return out << to_float(value); }

inline std::vector<Bf16> in_bf16(const std::vector<float>& values) {
  std::vector<Bf16> rounded(values.size());
  std::ranges::transform(values, rounded.begin(), to_bf16);
  return rounded;
}

template <class T>
testing::AssertionResult equal_values(const std::vector<T>& values, const std::vector<T>& expected) {
  const auto [at, expected_at] = std::mismatch(values.begin(), values.end(), expected.begin(), expected.end());
  if (at == values.end() && expected_at == expected.end()) return testing::AssertionSuccess();
  return testing::AssertionFailure() << "of " << values.size() << " values, number " << at - values.begin() << " is "
                                     << *at << " instead of " << *expected_at;
}

}  // namespace tutti
