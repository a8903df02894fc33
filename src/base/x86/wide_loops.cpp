#include "wide_loops.hpp"

namespace tutti {
namespace {

// AVX-512 F, BW, DQ and VL, as every processor with AVX-512 but the Xeon Phi has.
bool has_avx512() {
  static const bool has = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                          __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
  return has;
}

[[gnu::target("avx512f,avx512bw,avx512dq,avx512vl,prefer-vector-width=512")]] void draw_avx512(
    std::uint64_t seed, const RandomCounter& start, int dropped, std::span<double> numbers) {
  draw_numbers(seed, start, dropped, numbers);
}
[[gnu::target("avx2")]] void draw_avx2(std::uint64_t seed, const RandomCounter& start, int dropped,
                                       std::span<double> numbers) {
  draw_numbers(seed, start, dropped, numbers);
}

// The same for processors that multiply eight 64-bit integers in one instruction.
template <class T>
[[gnu::target("avx512f,avx512dq")]] std::uint64_t add_wide_digests(std::uint64_t start, const T* values,
                                                                   std::size_t count) {
  return add_digests(start, values, count);
}

}  // namespace

void draw(std::uint64_t seed, const RandomCounter& start, int dropped, std::span<double> numbers) {
  if (has_avx512()) return draw_avx512(seed, start, dropped, numbers);
  if (__builtin_cpu_supports("avx2")) return draw_avx2(seed, start, dropped, numbers);
  draw_numbers(seed, start, dropped, numbers);
}

template <class T>
std::uint64_t digest_sum(std::uint64_t start, const T* values, std::size_t count) {
  return (has_avx512() ? add_wide_digests<T> : add_digests<T>)(start, values, count);
}
template std::uint64_t digest_sum(std::uint64_t, const float*, std::size_t);
template std::uint64_t digest_sum(std::uint64_t, const double*, std::size_t);
template std::uint64_t digest_sum(std::uint64_t, const std::uint8_t*, std::size_t);
template std::uint64_t digest_sum(std::uint64_t, const std::int32_t*, std::size_t);
template std::uint64_t digest_sum(std::uint64_t, const std::int64_t*, std::size_t);

}  // namespace tutti
