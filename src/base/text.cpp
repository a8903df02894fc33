#include "tutti/base/text.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <sstream>

namespace tutti {
namespace {

// Length of the first character in bytes; 0 if the text does not begin with valid UTF-8.
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
  constexpr std::array<unsigned, 5> kMinCode{0, 0, 0x80, 0x800, 0x10000};
  const bool is_one = first >= 0xC0 && first < 0xF8 && code >= kMinCode[bytes] && code <= 0x10FFFF;
  const bool is_surrogate = code >= 0xD800 && code <= 0xDFFF;
  return is_one && !is_surrogate ? bytes : 0;
}

bool is_control(std::string_view character) {
  if (character.size() == 1) return (character[0] >= 0 && character[0] < ' ') || character[0] == '\x7f';
  if (character.size() == 2) return character[0] == '\xc2' && static_cast<unsigned char>(character[1]) < 0xA0;
  // Separators of lines and paragraphs (U+2028, U+2029) and direction marks (U+200E, U+200F, U+202A.., U+2066..).
  const bool is_general = character.starts_with("\xe2\x80") || character.starts_with("\xe2\x81");
  if (character.size() != 3 || !is_general) return false;
  const unsigned low =
      (static_cast<unsigned char>(character[1]) & 1U) << 6 | (static_cast<unsigned char>(character[2]) & 0x3FU);
  return low == 0x0E || low == 0x0F || (low >= 0x28 && low <= 0x2E) || (low >= 0x66 && low <= 0x69);
}

constexpr std::ptrdiff_t kMaxDepth = 64;
constexpr std::ptrdiff_t kMaxDotsPerLine = 128;

// A line's text without strings and comments, and the rest, from a quote on that does not end on the line.
struct SplitLine {
  std::string plain;
  std::string_view rest{};
};

SplitLine split_at_strings(std::string_view line) {
  std::string plain;
  while (true) {
    const std::size_t begin = line.find_first_of("\"'#");
    plain += line.substr(0, begin);
    if (begin == line.npos || line[begin] == '#') return {plain};
    const char quote = line[begin];
    std::size_t end = begin + 1;
    while (end < line.size() && line[end] != quote) end += quote == '"' && line[end] == '\\' ? 2 : 1;
    if (end >= line.size()) return {plain, line.substr(begin)};
    plain += "\"\"";
    line.remove_prefix(end + 1);
  }
}

bool is_header(std::string_view line) {
  constexpr std::string_view kCharacters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-[] \t\r";
  const auto opened = std::ranges::count(line, '[');
  return opened <= 2 && opened == std::ranges::count(line, ']') && line.starts_with('[') &&
         line.find_first_not_of(kCharacters) == line.npos;
}

bool opens(char c) { return c == '[' || c == '{'; }

}  // namespace

std::string printable(std::string_view text, std::string_view kept) {
  std::string shown;
  while (!text.empty()) {
    const std::size_t bytes = character_bytes(text);
    const std::string_view character = text.substr(0, bytes == 0 ? 1 : bytes);
    const bool stays = bytes > 0 && (!is_control(character) || kept.find(character) != kept.npos);
    if (stays) shown += character;
    for (std::size_t i = 0; i < character.size() && !stays; ++i) {
      shown += fmt::format("\\x{:02x}", static_cast<unsigned char>(character[i]));
    }
    text.remove_prefix(character.size());
  }
  return shown;
}

bool is_utf8(std::string_view text) {
  while (!text.empty()) {
    const std::size_t bytes = character_bytes(text);
    if (bytes == 0) return false;
    text.remove_prefix(bytes);
  }
  return true;
}

std::string toml_text(std::string_view text) {
  std::string quoted = "\"";
  for (const char c : text) {
    const bool is_control = (c >= 0 && c < ' ') || c == '\x7f';
    if (c == '"' || c == '\\') quoted += '\\';
    quoted += is_control ? fmt::format("\\u{:04X}", static_cast<int>(c)) : std::string(1, c);
  }
  return quoted + '"';
}

std::optional<TomlProblem> find_toml_problem(std::string_view text) {
  if (text.size() > kMaxTomlBytes) return TomlProblem{1, "this has more than 4 MiB, the limit: is the path right?"};
  std::ptrdiff_t depth = 0;
  const bool has_multi_line_strings = text.find("\"\"\"") != text.npos || text.find("'''") != text.npos;
  for (std::int64_t line = 1; !text.empty(); ++line) {
    std::string_view line_text = text.substr(0, text.find('\n'));
    text.remove_prefix(std::min(line_text.size() + 1, text.size()));
    if (!is_utf8(line_text)) return TomlProblem{line, "this line is not valid UTF-8: save the file as UTF-8"};
    line_text.remove_prefix(std::min(line_text.find_first_not_of(" \t"), line_text.size()));
    const bool may_be_in_string = has_multi_line_strings && !is_header(line_text);
    const auto [plain, rest] = may_be_in_string ? SplitLine{"", line_text} : split_at_strings(line_text);
    std::ptrdiff_t deepest = depth;
    for (const char c : plain) {
      if (opens(c)) deepest = std::max(deepest, ++depth);
      if (c == ']' || c == '}') depth = std::max<std::ptrdiff_t>(0, depth - 1);
    }
    depth += std::ranges::count_if(rest, opens);  // what closes there may be in a string
    const auto dots = std::ranges::count(plain, '.') + std::ranges::count(rest, '.');
    if (std::max(deepest, depth) > kMaxDepth || dots > kMaxDotsPerLine) {
      return TomlProblem{line, "this is nested too deeply: write one 'name = value' per line"};
    }
  }
  return std::nullopt;
}

std::string_view trimmed(std::string_view text) {
  text.remove_prefix(std::min(text.find_first_not_of(' '), text.size()));
  return text.substr(0, text.find_last_not_of(' ') + 1);
}

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream stream(text);
  for (std::string line; std::getline(stream, line);) lines.push_back(line);
  return lines;
}

std::vector<std::string> split(const std::string& text, char separator) {
  std::vector<std::string> words;
  std::istringstream stream(text);
  for (std::string word; std::getline(stream, word, separator);) words.emplace_back(trimmed(word));
  return words;
}

std::string in_lower_case(std::string text) {
  for (char& c : text) c = c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
  return text;
}

}  // namespace tutti
