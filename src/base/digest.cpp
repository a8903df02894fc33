#include "tutti/base/digest.hpp"

#include "wide_loops.hpp"

#include <fmt/format.h>

#include <charconv>

namespace tutti {
namespace {

template <class T>
std::uint64_t digest_values(std::string_view name, std::span<const T> values, std::uint64_t first = 0) {
  return digest_sum(digest_start(name, first), values.data(), values.size());
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
