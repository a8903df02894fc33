#include "tutti/base/toml_text.hpp"

#include <algorithm>
#include <array>
#include <cstddef>

namespace tutti {
namespace {

constexpr std::ptrdiff_t kMostBrackets = 64;  // in all
constexpr std::ptrdiff_t kMostDots = 128;     // in a line
constexpr std::string_view kOfHeader = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-[] \t\r";

// How many bytes the character in front has; 0 where there is none.
std::size_t character_bytes(std::string_view text) {
  const auto byte = [&](std::size_t i) { return i < text.size() ? static_cast<unsigned char>(text[i]) : 0U; };
  const unsigned first = byte(0);
  if (first < 0x80) return 1;
  const std::size_t bytes = first >= 0xF0 ? 4 : first >= 0xE0 ? 3 : 2;
  unsigned code = first & (0x7FU >> bytes);
  for (std::size_t i = 1; i < bytes; ++i) {
    if ((byte(i) & 0xC0) != 0x80) return 0;
    code = code << 6 | (byte(i) & 0x3F);
  }
  constexpr std::array<unsigned, 5> kLeast{0, 0, 0x80, 0x800, 0x10000};
  const bool is_one = first >= 0xC0 && first < 0xF8 && code >= kLeast[bytes] && code <= 0x10FFFF;
  const bool is_surrogate = code >= 0xD800 && code <= 0xDFFF;
  return is_one && !is_surrogate ? bytes : 0;
}

bool is_utf8(std::string_view text) {
  while (!text.empty()) {
    const std::size_t bytes = character_bytes(text);
    if (bytes == 0) return false;
    text.remove_prefix(bytes);
  }
  return true;
}

std::ptrdiff_t brackets_in(std::string_view words) {
  const auto opened = std::ranges::count(words, '[') + std::ranges::count(words, '{');
  const bool is_header = opened <= 2 && opened == std::ranges::count(words, ']') && words.starts_with('[') &&
                         words.find_first_not_of(kOfHeader) == words.npos;
  return is_header ? 0 : opened;
}

}  // namespace

std::optional<TomlFault> fault_of_toml(std::string_view text) {
  std::ptrdiff_t brackets = 0;
  for (std::int64_t line = 1; !text.empty(); ++line) {
    std::string_view words = text.substr(0, text.find('\n'));
    text.remove_prefix(std::min(words.size() + 1, text.size()));
    if (!is_utf8(words)) return TomlFault{line, "this is no UTF-8: save the file as such"};
    words.remove_prefix(std::min(words.find_first_not_of(" \t"), words.size()));
    if (words.starts_with('#')) continue;
    brackets += brackets_in(words);
    if (brackets > kMostBrackets || std::ranges::count(words, '.') > kMostDots) {
      return TomlFault{line, "this is nested too deep: write one 'name = value' a line"};
    }
  }
  return std::nullopt;
}

}  // namespace tutti
