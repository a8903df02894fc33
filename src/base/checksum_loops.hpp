#pragma once
// What the checksums of checksums.cpp and those with a processor's own instructions share, and the portable loops, with
// which tests compare those that were chosen for this processor.

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>

namespace tutti {

std::uint32_t portable_crc32c(std::span<const std::byte> bytes);

// Updates the state of a SHA-256 with whole blocks of 64 bytes.
using Sha256State = std::array<std::uint32_t, 8>;
void sha256_update(Sha256State& state, std::span<const std::byte> blocks);
void portable_sha256_update(Sha256State& state, std::span<const std::byte> blocks);

// Polynomials over GF(2) modulo kGenerator; the highest bit is the constant term.
constexpr std::uint32_t kGenerator = 0x82F63B78u;
constexpr std::uint32_t kOne = 0x80000000u;

constexpr std::uint32_t times_x(std::uint32_t a) { return (a >> 1) ^ ((a & 1u) * kGenerator); }

constexpr std::uint32_t product(std::uint32_t a, std::uint32_t b) {
  std::uint32_t sum = 0;
  for (int power = 0; power < 32; ++power) {
    sum ^= ((a << power) >> 31) * b;
    b = times_x(b);
  }
  return sum;
}

// The CRC instruction has a latency of three cycles and a throughput of one: three interleaved runs hide the latency.
constexpr std::size_t kRunBytes = 4096;
// x to the power of 8 * kRunBytes = 2^15.
constexpr std::uint32_t kPastOneRun = [] {
  std::uint32_t power = times_x(kOne);
  for (int squarings = 0; squarings < 15; ++squarings) power = product(power, power);
  return power;
}();

inline std::uint64_t word_at(const std::byte* at) {
  std::uint64_t word = 0;
  std::memcpy(&word, at, sizeof(word));
  return word;
}

// add_word(crc, 8 bytes) and add_byte(crc, byte) are the processor's instructions.
template <class AddWord, class AddByte>
[[gnu::always_inline]] inline std::uint32_t crc32c_in_runs(std::span<const std::byte> bytes, AddWord add_word,
                                                           AddByte add_byte) {
  std::uint64_t crc = 0xFFFFFFFFu;
  const std::byte* at = bytes.data();
  std::size_t left = bytes.size();
  for (; left >= 3 * kRunBytes; left -= 3 * kRunBytes, at += 3 * kRunBytes) {
    std::uint64_t second = 0;
    std::uint64_t third = 0;
    for (const std::byte* word = at; word != at + kRunBytes; word += 8) {
      crc = add_word(crc, word_at(word));
      second = add_word(second, word_at(word + kRunBytes));
      third = add_word(third, word_at(word + 2 * kRunBytes));
    }
    const std::uint32_t first_two =
        product(kPastOneRun, static_cast<std::uint32_t>(crc)) ^ static_cast<std::uint32_t>(second);
    crc = product(kPastOneRun, first_two) ^ third;
  }
  for (; left >= 8; left -= 8, at += 8) crc = add_word(crc, word_at(at));
  auto last = static_cast<std::uint32_t>(crc);
  for (; left > 0; --left, ++at) last = add_byte(last, static_cast<std::uint8_t>(*at));
  return ~last;
}

constexpr std::size_t kBlock = 64;  // of SHA-256
// clang-format off
alignas(16) constexpr std::array<std::uint32_t, 64> kRounds{
    0x428a2f98u, 0x71374491u, 0xb5c0fbcfu, 0xe9b5dba5u, 0x3956c25bu, 0x59f111f1u, 0x923f82a4u, 0xab1c5ed5u,
    0xd807aa98u, 0x12835b01u, 0x243185beu, 0x550c7dc3u, 0x72be5d74u, 0x80deb1feu, 0x9bdc06a7u, 0xc19bf174u,
    0xe49b69c1u, 0xefbe4786u, 0x0fc19dc6u, 0x240ca1ccu, 0x2de92c6fu, 0x4a7484aau, 0x5cb0a9dcu, 0x76f988dau,
    0x983e5152u, 0xa831c66du, 0xb00327c8u, 0xbf597fc7u, 0xc6e00bf3u, 0xd5a79147u, 0x06ca6351u, 0x14292967u,
    0x27b70a85u, 0x2e1b2138u, 0x4d2c6dfcu, 0x53380d13u, 0x650a7354u, 0x766a0abbu, 0x81c2c92eu, 0x92722c85u,
    0xa2bfe8a1u, 0xa81a664bu, 0xc24b8b70u, 0xc76c51a3u, 0xd192e819u, 0xd6990624u, 0xf40e3585u, 0x106aa070u,
    0x19a4c116u, 0x1e376c08u, 0x2748774cu, 0x34b0bcb5u, 0x391c0cb3u, 0x4ed8aa4au, 0x5b9cca4fu, 0x682e6ff3u,
    0x748f82eeu, 0x78a5636fu, 0x84c87814u, 0x8cc70208u, 0x90befffau, 0xa4506cebu, 0xbef9a3f7u, 0xc67178f2u};
// clang-format on

}  // namespace tutti
