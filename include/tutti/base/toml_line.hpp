#pragma once
// In which line of a TOML file something stands, from 1. Versions 3 and 4 of toml11 tell it by different names; which
// of them is at hand is read off the types given. And which line must not be given to either.

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string_view>

namespace tutti {

// `place` is the location() of a value.
template <class Place>
std::int64_t line_of_place(const Place& place) {
  if constexpr (requires { place.first_line_number(); }) {
    return static_cast<std::int64_t>(place.first_line_number());
  } else {
    return static_cast<std::int64_t>(place.line());
  }
}

// `error` is what parsing has thrown.
template <class SyntaxError>
std::int64_t line_of_error(const SyntaxError& error) {
  if constexpr (requires { error.location(); }) {
    return line_of_place(error.location());
  } else {
    return line_of_place(error.errors().at(0).locations().at(0).first);
  }
}

// toml11 goes into nested values by recursion, until the stack ends, and takes dotted keys in quadratic time. Tells the
// first line up to which there are more brackets, or in which there are more dots, than any sensible file has. Counts
// those in texts, too, and none of headers such as [[layer]] and of comments.
inline std::optional<std::int64_t> line_of_hostile_depth(std::string_view text) {
  constexpr std::ptrdiff_t kMostBrackets = 64;
  constexpr std::ptrdiff_t kMostDots = 128;
  constexpr std::string_view kOfHeader = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-[] \t\r";
  std::ptrdiff_t brackets = 0;
  for (std::int64_t line = 1; !text.empty(); ++line) {
    std::string_view words = text.substr(0, text.find('\n'));
    text.remove_prefix(std::min(words.size() + 1, text.size()));
    words.remove_prefix(std::min(words.find_first_not_of(" \t"), words.size()));
    if (words.starts_with('#')) continue;
    const auto opened = std::ranges::count(words, '[') + std::ranges::count(words, '{');
    const bool is_closed = opened <= 2 && opened == std::ranges::count(words, ']');
    const bool is_header = is_closed && words.starts_with('[') && words.find_first_not_of(kOfHeader) == words.npos;
    if (!is_header) brackets += opened;
    if (brackets > kMostBrackets || std::ranges::count(words, '.') > kMostDots) return line;
  }
  return std::nullopt;
}

}  // namespace tutti
