#include "tutti/base/checksums.hpp"

#include "checksum_loops.hpp"

#include <cpuid.h>
#include <immintrin.h>

namespace tutti {
namespace {

[[gnu::target("sse4.2")]] std::uint32_t crc32c_sse42(std::span<const std::byte> bytes) {
  struct Word {
    [[gnu::target("sse4.2")]] std::uint64_t operator()(std::uint64_t crc, std::uint64_t word) const {
      return _mm_crc32_u64(crc, word);
    }
  };
  struct Byte {
    [[gnu::target("sse4.2")]] std::uint32_t operator()(std::uint32_t crc, std::uint8_t byte) const {
      return _mm_crc32_u8(crc, byte);
    }
  };
  return crc32c_in_runs(bytes, Word(), Byte());
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

std::uint32_t crc32c(std::span<const std::byte> bytes) {
  static const auto loop = __builtin_cpu_supports("sse4.2") ? crc32c_sse42 : portable_crc32c;
  return loop(bytes);
}

void sha256_update(Sha256State& state, std::span<const std::byte> blocks) {
  static const auto loop = has_sha_ni() ? sha256_update_ni : portable_sha256_update;
  loop(state, blocks);
}

}  // namespace tutti
