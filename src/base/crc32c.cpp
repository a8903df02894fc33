#include "tutti/base/crc32c.hpp"

#include "portable_checksums.hpp"

#include <immintrin.h>

#include <array>
#include <cstring>

namespace tutti {
namespace {

// Polynomials modulo this one over GF(2), the highest bit the constant term.
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

constexpr std::uint32_t x_to_the(std::size_t power) {
  std::uint32_t result = kOne;
  for (std::uint32_t square = times_x(kOne); power != 0; power >>= 1) {
    if (power % 2 != 0) result = product(result, square);
    square = product(square, square);
  }
  return result;
}

// The instruction takes a word in three cycles, but begins one in each: three runs of bytes go side by side.
constexpr std::size_t kRunBytes = 4096;
constexpr std::uint32_t kPastOneRun = x_to_the(8 * kRunBytes);
constexpr std::uint32_t kPastTwoRuns = x_to_the(16 * kRunBytes);

// [n][byte]: what a byte leaves after n more zero bytes.
using Tables = std::array<std::array<std::uint32_t, 256>, 8>;
constexpr Tables make_tables() {
  Tables tables{};
  for (std::uint32_t byte = 0; byte < 256; ++byte) {
    std::uint32_t left = byte;
    for (int bit = 0; bit < 8; ++bit) left = times_x(left);
    tables[0][byte] = left;
  }
  for (std::size_t zeros = 1; zeros < tables.size(); ++zeros) {
    for (std::size_t byte = 0; byte < 256; ++byte) {
      const std::uint32_t left = tables[zeros - 1][byte];
      tables[zeros][byte] = (left >> 8) ^ tables[0][left & 0xFFu];
    }
  }
  return tables;
}
constexpr Tables kTables = make_tables();

std::uint64_t word_at(const std::byte* at) {
  std::uint64_t word = 0;
  std::memcpy(&word, at, sizeof(word));
  return word;
}

[[gnu::target("sse4.2")]] std::uint32_t by_instruction(std::span<const std::byte> bytes) {
  std::uint64_t crc = 0xFFFFFFFFu;
  const std::byte* at = bytes.data();
  std::size_t left = bytes.size();
  for (; left >= 3 * kRunBytes; left -= 3 * kRunBytes, at += 3 * kRunBytes) {
    std::uint64_t second = 0;
    std::uint64_t third = 0;
    for (const std::byte* word = at; word != at + kRunBytes; word += 8) {
      crc = _mm_crc32_u64(crc, word_at(word));
      second = _mm_crc32_u64(second, word_at(word + kRunBytes));
      third = _mm_crc32_u64(third, word_at(word + 2 * kRunBytes));
    }
    crc = product(kPastTwoRuns, static_cast<std::uint32_t>(crc)) ^
          product(kPastOneRun, static_cast<std::uint32_t>(second)) ^ third;
  }
  for (; left >= 8; left -= 8, at += 8) crc = _mm_crc32_u64(crc, word_at(at));
  auto last = static_cast<std::uint32_t>(crc);
  for (; left > 0; --left, ++at) last = _mm_crc32_u8(last, static_cast<std::uint8_t>(*at));
  return ~last;
}

}  // namespace

std::uint32_t portable_crc32c(std::span<const std::byte> bytes) {
  std::uint32_t crc = 0xFFFFFFFFu;
  const std::byte* at = bytes.data();
  std::size_t left = bytes.size();
  for (; left >= 8; left -= 8, at += 8) {
    std::uint64_t word = word_at(at) ^ crc;
    crc = 0;
    for (std::size_t zeros = 8; zeros-- > 0; word >>= 8) crc ^= kTables[zeros][word & 0xFFu];
  }
  for (; left > 0; --left, ++at) crc = (crc >> 8) ^ kTables[0][(crc ^ static_cast<std::uint32_t>(*at)) & 0xFFu];
  return ~crc;
}

std::uint32_t crc32c(std::span<const std::byte> bytes) {
  static const auto loop = __builtin_cpu_supports("sse4.2") ? by_instruction : portable_crc32c;
  return loop(bytes);
}

}  // namespace tutti
