#include "tutti/base/toml_text.hpp"

#include "tutti/base/utf8.hpp"

#include <algorithm>
#include <cstddef>

namespace tutti {
namespace {

constexpr std::ptrdiff_t kMostBrackets = 64;  // in all
constexpr std::ptrdiff_t kMostDots = 128;     // in a line
constexpr std::string_view kOfHeader = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-[] \t\r";

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
