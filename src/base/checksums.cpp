#include "tutti/base/checksums.hpp"

#include "portable_checksums.hpp"

#include <cpuid.h>
#include <fmt/format.h>
#include <immintrin.h>

#include <algorithm>
#include <bit>
#include <cstring>

namespace tutti {
namespace {

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

constexpr auto kTable = [] {
  std::array<std::uint32_t, 256> table{};
  for (std::uint32_t byte = 0; byte < table.size(); ++byte) {
    table[byte] = byte;
    for (int bit = 0; bit < 8; ++bit) table[byte] = times_x(table[byte]);
  }
  return table;
}();

std::uint64_t word_at(const std::byte* at) {
  std::uint64_t word = 0;
  std::memcpy(&word, at, sizeof(word));
  return word;
}

[[gnu::target("sse4.2")]] std::uint32_t crc32c_sse42(std::span<const std::byte> bytes) {
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
    const std::uint32_t first_two =
        product(kPastOneRun, static_cast<std::uint32_t>(crc)) ^ static_cast<std::uint32_t>(second);
    crc = product(kPastOneRun, first_two) ^ third;
  }
  for (; left >= 8; left -= 8, at += 8) crc = _mm_crc32_u64(crc, word_at(at));
  auto last = static_cast<std::uint32_t>(crc);
  for (; left > 0; --left, ++at) last = _mm_crc32_u8(last, static_cast<std::uint8_t>(*at));
  return ~last;
}

constexpr std::size_t kBlock = 64;
constexpr std::size_t kLengthBytes = 8;
constexpr Sha256State kStart{0x6a09e667u, 0xbb67ae85u, 0x3c6ef372u, 0xa54ff53au,
                             0x510e527fu, 0x9b05688cu, 0x1f83d9abu, 0x5be0cd19u};
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

std::uint32_t big_endian(const std::byte* at) {
  std::uint32_t word = 0;
  for (int i = 0; i < 4; ++i) word = word << 8 | static_cast<std::uint32_t>(at[i]);
  return word;
}

bool has_sha_ni() {
  unsigned a = 0, b = 0, c = 0, d = 0;
  return __builtin_cpu_supports("sse4.1") != 0 && __get_cpuid_count(7, 0, &a, &b, &c, &d) != 0 && (b >> 29 & 1u) != 0;
}

// SHA-NI expects the state's words as A B E F and C D G H, the highest first.
[[gnu::target("sha,sse4.1")]] void sha256_update_ni(Sha256State& state, std::span<const std::byte> blocks) {
  const __m128i swap = _mm_set_epi64x(0x0c0d0e0f08090a0b, 0x0405060700010203);
  auto* const words = reinterpret_cast<__m128i*>(state.data());
  const __m128i cdab = _mm_shuffle_epi32(_mm_loadu_si128(words), 0xB1);
  const __m128i efgh = _mm_shuffle_epi32(_mm_loadu_si128(words + 1), 0x1B);
  __m128i abef = _mm_alignr_epi8(cdab, efgh, 8);
  __m128i cdgh = _mm_blend_epi16(efgh, cdab, 0xF0);
  const std::byte* const end = blocks.data() + blocks.size();
  for (const std::byte* block = blocks.data(); block != end; block += kBlock) {
    const __m128i abef_before = abef;
    const __m128i cdgh_before = cdgh;
    __m128i w[4];
#pragma GCC unroll 16
    for (int four = 0; four < 16; ++four) {  // rounds at a time
      __m128i& now = w[four % 4];
      if (four < 4) {
        now = _mm_shuffle_epi8(_mm_loadu_si128(reinterpret_cast<const __m128i*>(block) + four), swap);
      } else {
        const __m128i last = w[(four + 3) % 4];
        const __m128i seven_before = _mm_alignr_epi8(last, w[(four + 2) % 4], 4);
        now = _mm_sha256msg2_epu32(_mm_add_epi32(_mm_sha256msg1_epu32(now, w[(four + 1) % 4]), seven_before), last);
      }
      const __m128i rounds =
          _mm_add_epi32(now, _mm_load_si128(reinterpret_cast<const __m128i*>(kRounds.data()) + four));
      cdgh = _mm_sha256rnds2_epu32(cdgh, abef, rounds);
      abef = _mm_sha256rnds2_epu32(abef, cdgh, _mm_shuffle_epi32(rounds, 0x0E));
    }
    abef = _mm_add_epi32(abef, abef_before);
    cdgh = _mm_add_epi32(cdgh, cdgh_before);
  }
  const __m128i feba = _mm_shuffle_epi32(abef, 0x1B);
  const __m128i dchg = _mm_shuffle_epi32(cdgh, 0xB1);
  _mm_storeu_si128(words, _mm_blend_epi16(feba, dchg, 0xF0));
  _mm_storeu_si128(words + 1, _mm_alignr_epi8(dchg, feba, 8));
}

}  // namespace

std::uint32_t portable_crc32c(std::span<const std::byte> bytes) {
  std::uint32_t crc = 0xFFFFFFFFu;
  for (const std::byte byte : bytes) crc = (crc >> 8) ^ kTable[(crc ^ static_cast<std::uint32_t>(byte)) & 0xFFu];
  return ~crc;
}

std::uint32_t crc32c(std::span<const std::byte> bytes) {
  static const auto loop = __builtin_cpu_supports("sse4.2") ? crc32c_sse42 : portable_crc32c;
  return loop(bytes);
}

void portable_sha256_update(Sha256State& state, std::span<const std::byte> blocks) {
  for (; !blocks.empty(); blocks = blocks.subspan(kBlock)) {
    std::array<std::uint32_t, 64> w{};
    for (std::size_t t = 0; t < 16; ++t) w[t] = big_endian(blocks.data() + 4 * t);
    for (std::size_t t = 16; t < 64; ++t) {
      const std::uint32_t near = std::rotr(w[t - 2], 17) ^ std::rotr(w[t - 2], 19) ^ (w[t - 2] >> 10);
      const std::uint32_t far = std::rotr(w[t - 15], 7) ^ std::rotr(w[t - 15], 18) ^ (w[t - 15] >> 3);
      w[t] = near + w[t - 7] + far + w[t - 16];
    }
    auto [a, b, c, d, e, f, g, h] = state;
    for (std::size_t t = 0; t < 64; ++t) {
      const std::uint32_t first =
          h + (std::rotr(e, 6) ^ std::rotr(e, 11) ^ std::rotr(e, 25)) + ((e & f) ^ (~e & g)) + kRounds[t] + w[t];
      const std::uint32_t second =
          (std::rotr(a, 2) ^ std::rotr(a, 13) ^ std::rotr(a, 22)) + ((a & b) ^ (a & c) ^ (b & c));
      h = g, g = f, f = e, e = d + first;
      d = c, c = b, b = a, a = first + second;
    }
    const Sha256State after{a, b, c, d, e, f, g, h};
    for (std::size_t i = 0; i < state.size(); ++i) state[i] += after[i];
  }
}

void sha256_update(Sha256State& state, std::span<const std::byte> blocks) {
  static const auto loop = has_sha_ni() ? sha256_update_ni : portable_sha256_update;
  loop(state, blocks);
}

std::string sha256_text(std::span<const std::byte> bytes) {
  Sha256State state = kStart;
  const auto rest = bytes.last(bytes.size() % kBlock);
  sha256_update(state, bytes.first(bytes.size() - rest.size()));
  std::array<std::byte, 2 * kBlock> end{};
  std::ranges::copy(rest, end.begin());
  end[rest.size()] = std::byte{0x80};
  const std::size_t size = rest.size() < kBlock - kLengthBytes ? kBlock : 2 * kBlock;
  const std::uint64_t bits = 8 * std::uint64_t{bytes.size()};
  for (std::size_t i = 0; i < kLengthBytes; ++i) end[size - 1 - i] = static_cast<std::byte>(bits >> (8 * i));
  sha256_update(state, std::span(end).first(size));
  std::string text;
  for (const std::uint32_t word : state) text += fmt::format("{:08x}", word);
  return text;
}

}  // namespace tutti
