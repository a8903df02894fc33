#pragma once
// Loops that are compiled for the widest registers of each kind of processor. Their arithmetic uses integers, and
// doubles without rounding, so that all give the same bits.

#include "tutti/base/digest.hpp"
#include "tutti/base/random.hpp"

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <span>

namespace tutti {

// The first draws of the sequences of many items: numbers[i] becomes the high 32 - `dropped` bits of the first word and
// the high 26 bits of the second of the sequence of item start.item + i.
void draw(std::uint64_t seed, const RandomCounter& start, int dropped, std::span<double> numbers);

// A digest's sum over the values, which are of a type in digest.hpp, from digest_start() on.
template <class T>
std::uint64_t digest_sum(std::uint64_t start, const T* values, std::size_t count);

constexpr int kPhiloxRounds = 10;

struct PhiloxKeys {
  explicit PhiloxKeys(std::uint64_t key)
      : low(static_cast<std::uint32_t>(key)), high(static_cast<std::uint32_t>(key >> 32)) {}

  void to_next_round() {
    low += 0x9E3779B9u;
    high += 0xBB67AE85u;
  }

  std::uint32_t low;
  std::uint32_t high;
};

[[gnu::always_inline]] inline void philox_round(const PhiloxKeys& keys, std::uint32_t& x0, std::uint32_t& x1,
                                                std::uint32_t& x2, std::uint32_t& x3) {
  const std::uint64_t product0 = std::uint64_t{0xD2511F53u} * x0;
  const std::uint64_t product1 = std::uint64_t{0xCD9E8D57u} * x2;
  x0 = static_cast<std::uint32_t>(product1 >> 32) ^ x1 ^ keys.low;
  x1 = static_cast<std::uint32_t>(product1);
  x2 = static_cast<std::uint32_t>(product0 >> 32) ^ x3 ^ keys.high;
  x3 = static_cast<std::uint32_t>(product0);
}

constexpr std::size_t kRow = 64;

[[gnu::always_inline]] inline void draw_numbers(std::uint64_t seed, RandomCounter at, int dropped,
                                                std::span<double> numbers) {
  alignas(64) std::uint32_t x0[kRow];
  alignas(64) std::uint32_t x1[kRow];
  alignas(64) std::uint32_t x2[kRow];
  alignas(64) std::uint32_t x3[kRow];
  alignas(64) double joined[kRow];
  for (std::size_t done = 0; done < numbers.size(); done += kRow, at.item += kRow) {
    for (std::uint32_t i = 0; i < kRow; ++i) {
      x0[i] = at.draw;
      x1[i] = at.item + i;
      x2[i] = at.when;
      x3[i] = at.purpose;
    }
    PhiloxKeys keys(seed);
    for (int round = 0; round < kPhiloxRounds; ++round, keys.to_next_round()) {
      for (std::size_t i = 0; i < kRow; ++i) philox_round(keys, x0[i], x1[i], x2[i], x3[i]);
    }
    for (std::size_t i = 0; i < kRow; ++i) {
      const auto high = static_cast<std::int32_t>(x0[i] >> dropped);
      const auto low = static_cast<std::int32_t>(x1[i] >> 6);
      joined[i] = static_cast<double>(high) * 0x1p26 + static_cast<double>(low);
    }
    std::copy_n(joined, std::min(kRow, numbers.size() - done), numbers.data() + done);
  }
}

constexpr std::uint64_t bits(float x) { return std::bit_cast<std::uint32_t>(x); }
constexpr std::uint64_t bits(double x) { return std::bit_cast<std::uint64_t>(x); }
constexpr std::uint64_t bits(std::uint8_t x) { return x; }
constexpr std::uint64_t bits(std::int32_t x) { return static_cast<std::uint32_t>(x); }
constexpr std::uint64_t bits(std::int64_t x) { return static_cast<std::uint64_t>(x); }

template <class T>
[[gnu::always_inline]] inline std::uint64_t add_digests(std::uint64_t start, const T* values, std::size_t count) {
  std::uint64_t sum = 0;
  for (std::size_t i = 0; i < count; ++i) sum += mix64(bits(values[i]) + start + (i + 1) * kDigestStride);
  return sum;
}

}  // namespace tutti
