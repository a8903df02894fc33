#include "tutti/base/elementary.hpp"
#include "tutti/base/random.hpp"
#include "tutti/base/wide_registers.hpp"

#include "philox_round.hpp"

#include <algorithm>
#include <cstddef>

// Many sequences side by side, in loops that compilers turn into wide instructions. The arithmetic is of integers, and
// of doubles without rounding, so that all sets of instructions leave the same bits.

namespace tutti {
namespace {

constexpr std::size_t kRow = 64;

// By sequence, the first two words of it, less their lowest bits.
struct Row {
  alignas(64) std::uint32_t first[kRow];
  alignas(64) std::uint32_t second[kRow];
};

// philox() of as many items; of its four words, two are wanted.
[[gnu::always_inline]] inline void draw_row(std::uint64_t seed, const RandomCounter& start, Row& row) {
  alignas(64) std::uint32_t x2[kRow];
  alignas(64) std::uint32_t x3[kRow];
  for (std::uint32_t i = 0; i < kRow; ++i) {
    row.first[i] = start.draw;
    row.second[i] = start.item + i;
    x2[i] = start.when;
    x3[i] = start.purpose;
  }
  PhiloxKeys keys(seed);
  for (int round = 0; round < kPhiloxRounds; ++round, keys.to_next_round()) {
    for (std::size_t i = 0; i < kRow; ++i) philox_round(keys, row.first[i], row.second[i], x2[i], x3[i]);
  }
}

// Numbers of so many high bits of the first word, and 26 of the second one.
template <int kShift>
[[gnu::always_inline]] inline void join_row(const Row& row, double* numbers) {
  for (std::size_t i = 0; i < kRow; ++i) {
    const auto high = static_cast<std::int32_t>(row.first[i] >> kShift);
    const auto low = static_cast<std::int32_t>(row.second[i] >> 6);
    numbers[i] = static_cast<double>(high) * 0x1p26 + static_cast<double>(low);
  }
}

template <int kShift>
[[gnu::always_inline]] inline void draw_numbers(std::uint64_t seed, RandomCounter at, std::span<double> numbers) {
  Row row;
  alignas(64) double joined[kRow];
  for (std::size_t done = 0; done < numbers.size(); done += kRow, at.item += kRow) {
    draw_row(seed, at, row);
    join_row<kShift>(row, joined);
    std::copy_n(joined, std::min(kRow, numbers.size() - done), numbers.data() + done);
  }
}

template <int kShift>
[[gnu::target("avx512f,avx512bw,avx512dq,avx512vl,prefer-vector-width=512")]] void draw_avx512(
    std::uint64_t seed, const RandomCounter& start, std::span<double> numbers) {
  draw_numbers<kShift>(seed, start, numbers);
}
template <int kShift>
[[gnu::target("avx2")]] void draw_avx2(std::uint64_t seed, const RandomCounter& start, std::span<double> numbers) {
  draw_numbers<kShift>(seed, start, numbers);
}

template <int kShift>
void draw(std::uint64_t seed, const RandomCounter& start, std::span<double> numbers) {
  if (has_avx512()) {
    draw_avx512<kShift>(seed, start, numbers);
  } else if (__builtin_cpu_supports("avx2")) {
    draw_avx2<kShift>(seed, start, numbers);
  } else {
    draw_numbers<kShift>(seed, start, numbers);
  }
}

}  // namespace

void first_uniforms(std::uint64_t seed, const RandomCounter& start, std::span<double> values) {
  draw<5>(seed, start, values);
  for (double& value : values) value *= 0x1p-53;
}

void first_normals(std::uint64_t seed, const RandomCounter& start, std::span<double> values) {
  draw<6>(seed, start, values);
  for (double& value : values) value = portable_normal_quantile((value + 0.5) * 0x1p-52);
}

}  // namespace tutti
