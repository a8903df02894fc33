#include "tutti/base/digest.hpp"

#include <fmt/format.h>

#include <bit>

namespace tutti {
namespace {

std::uint64_t bits(float x) { return std::bit_cast<std::uint32_t>(x); }
std::uint64_t bits(double x) { return std::bit_cast<std::uint64_t>(x); }
std::uint64_t bits(std::uint8_t x) { return x; }
std::uint64_t bits(std::int32_t x) { return static_cast<std::uint32_t>(x); }
std::uint64_t bits(std::int64_t x) { return static_cast<std::uint64_t>(x); }

template <class T>
std::uint64_t sum_of_mixes(std::string_view name, std::span<const T> values, std::uint64_t first = 0) {
  constexpr std::uint64_t kStride = 0x9E3779B97F4A7C15u;
  std::uint64_t position = hash64(name) + first * kStride;
  std::uint64_t sum = 0;
  for (const T value : values) {
    position += kStride;
    sum += mix64(bits(value) + position);
  }
  return sum;
}

}  // namespace

std::uint64_t digest(std::string_view name, std::span<const float> values) { return sum_of_mixes(name, values); }
std::uint64_t digest(std::string_view name, std::span<const double> values) { return sum_of_mixes(name, values); }
std::uint64_t digest(std::string_view name, std::span<const std::uint8_t> values, std::uint64_t first) {
  return sum_of_mixes(name, values, first);
}
std::uint64_t digest(std::string_view name, std::span<const std::int32_t> values) { return sum_of_mixes(name, values); }
std::uint64_t digest(std::string_view name, std::span<const std::int64_t> values) { return sum_of_mixes(name, values); }

std::string digest_text(std::uint64_t digest) { return fmt::format("{:016x}", digest); }

}  // namespace tutti
