#pragma once
// One of the ten rounds of Philox 4x32: on the counter of one sequence, or in a loop over those of many, which
// compilers then turn into wide instructions.

#include <cstdint>

namespace tutti {

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

}  // namespace tutti
