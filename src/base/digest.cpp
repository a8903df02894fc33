#include "tutti/base/digest.hpp"

#include "tutti/base/process.hpp"

#include <fmt/format.h>

#include <bit>
#include <charconv>
#include <cstddef>

namespace tutti {
namespace {

constexpr std::uint64_t bits(float x) { return std::bit_cast<std::uint32_t>(x); }
constexpr std::uint64_t bits(double x) { return std::bit_cast<std::uint64_t>(x); }
constexpr std::uint64_t bits(std::uint8_t x) { return x; }
constexpr std::uint64_t bits(std::int32_t x) { return static_cast<std::uint32_t>(x); }
constexpr std::uint64_t bits(std::int64_t x) { return static_cast<std::uint64_t>(x); }

template <class T>
[[gnu::always_inline]] inline std::uint64_t sum_from(std::uint64_t start, const T* values, std::size_t count) {
  std::uint64_t sum = 0;
  for (std::size_t i = 0; i < count; ++i) sum += mix64(bits(values[i]) + start + (i + 1) * kDigestStride);
  return sum;
}

// The same for processors that multiply eight 64-bit integers in one instruction.
template <class T>
[[gnu::target("avx512f,avx512dq")]] std::uint64_t wide_sum_from(std::uint64_t start, const T* values,
                                                                std::size_t count) {
  return sum_from(start, values, count);
}

template <class T>
std::uint64_t digest_values(std::string_view name, std::span<const T> values, std::uint64_t first = 0) {
  const std::uint64_t start = digest_start(name, first);
  return (has_avx512() ? wide_sum_from<T> : sum_from<T>)(start, values.data(), values.size());
}

}  // namespace

std::uint64_t digest(std::string_view name, std::span<const float> values) { return digest_values(name, values); }
std::uint64_t digest(std::string_view name, std::span<const double> values) { return digest_values(name, values); }
std::uint64_t digest(std::string_view name, std::span<const std::uint8_t> values, std::uint64_t first) {
  return digest_values(name, values, first);
}
std::uint64_t digest(std::string_view name, std::span<const std::int32_t> values) {
  return digest_values(name, values);
}
std::uint64_t digest(std::string_view name, std::span<const std::int64_t> values) {
  return digest_values(name, values);
}

std::string digest_text(std::uint64_t digest) { return fmt::format("{:016x}", digest); }

std::optional<std::uint64_t> parse_digest(std::string_view text) {
  std::uint64_t digest = 0;
  std::from_chars(text.data(), text.data() + text.size(), digest, 16);
  if (digest_text(digest) != text) return std::nullopt;
  return digest;
}

}  // namespace tutti
