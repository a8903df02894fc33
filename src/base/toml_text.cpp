#include "tutti/base/toml_text.hpp"

#include "tutti/base/utf8.hpp"

#include <algorithm>
#include <cstddef>
#include <string>

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

// A line with its texts emptied, since nothing in quotes is nested. What lies behind a # or a quote that is not closed
// stays.
std::string without_texts(std::string_view line) {
  std::string rest;
  while (true) {
    const std::size_t begin = line.find_first_of("\"'#");
    rest += line.substr(0, begin);
    if (begin == line.npos) return rest;
    const char quote = line[begin];
    std::size_t end = begin + 1;
    while (end < line.size() && line[end] != quote) end += quote == '"' && line[end] == '\\' ? 2 : 1;
    if (quote == '#' || end >= line.size()) return rest.append(line.substr(begin));
    rest += "\"\"";
    line.remove_prefix(end + 1);
  }
}

bool has_texts_of_several_lines(std::string_view text) {
  return text.find("\"\"\"") != text.npos || text.find("'''") != text.npos;
}

}  // namespace

std::optional<TomlFault> fault_of_toml(std::string_view text) {
  std::ptrdiff_t brackets = 0;
  const bool counts_texts = has_texts_of_several_lines(text);
  for (std::int64_t line = 1; !text.empty(); ++line) {
    std::string_view words = text.substr(0, text.find('\n'));
    text.remove_prefix(std::min(words.size() + 1, text.size()));
    if (!is_utf8(words)) return TomlFault{line, "this is no UTF-8: save the file as such"};
    words.remove_prefix(std::min(words.find_first_not_of(" \t"), words.size()));
    if (words.starts_with('#')) continue;
    const std::string nesting = counts_texts ? std::string(words) : without_texts(words);
    brackets += brackets_in(nesting);
    if (brackets > kMostBrackets || std::ranges::count(nesting, '.') > kMostDots) {
      return TomlFault{line, "this is nested too deep: write one 'name = value' a line"};
    }
  }
  return std::nullopt;
}

}  // namespace tutti
