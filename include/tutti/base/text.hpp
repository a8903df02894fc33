#pragma once
// Text: lists and numbers, validation of UTF-8, lower case, escaping for terminals, and checks before toml11 parses a
// file.

#include <charconv>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>
#include <vector>

namespace tutti {

bool is_utf8(std::string_view text);

std::string in_lower_case(std::string text);  // ASCII letters only

// Without the spaces at both ends.
std::string_view trimmed(std::string_view text);

// The trimmed words between the separators; a text that ends with one has no empty word after it.
std::vector<std::string> split(const std::string& text, char separator);

// As they are; a text that ends with a line break has no empty line after it.
std::vector<std::string> lines_of(const std::string& text);

// Empty if the text is not one number, or one that the type cannot hold.
template <class Number>
std::optional<Number> parse_number(std::string_view text) {
  Number number{};
  const auto [rest, status] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (status != std::errc{} || rest != text.data() + text.size()) return std::nullopt;
  return number;
}

// Numbers separated by commas; empty if the text is anything else.
template <class Number>
std::vector<Number> parse_numbers(const std::string& text) {
  std::vector<Number> numbers;
  if (text.ends_with(',')) return {};
  for (const std::string& word : split(text, ',')) {
    const auto number = parse_number<Number>(word);
    if (!number) return {};
    numbers.push_back(*number);
  }
  return numbers;
}

// Returns the text with control characters, marks that change the writing direction and invalid bytes escaped as \x1b,
// so that a name from a file cannot move the cursor or forge a line. The characters in `kept` are not escaped.
std::string printable(std::string_view text, std::string_view kept = {});

// A string of TOML, on one line.
std::string toml_text(std::string_view text);

struct TomlProblem {
  std::int64_t line = 0;
  std::string_view message{};
};

// Options and models have a few lines. Reading a megabyte takes up to 0.6 seconds, in which no signal ends the program.
inline constexpr std::size_t kMaxTomlBytes = std::size_t{4} << 20;

// Finds text that toml11 must not be given, besides longer ones: it follows nested values by recursion until the stack
// ends, takes quadratic time for dotted keys, and version 3 reads beyond its buffer if a text is not UTF-8. If the file
// has multi-line strings, brackets in strings and comments count as nested, too, and closing ones count only in headers
// such as [[layer]].
std::optional<TomlProblem> find_toml_problem(std::string_view text);

// The line of a TOML value's location(), from 1. Versions 3 and 4 of toml11 name it differently.
template <class Location>
std::int64_t line_of_location(const Location& location) {
  if constexpr (requires { location.first_line_number(); }) {
    return static_cast<std::int64_t>(location.first_line_number());
  } else {
    return static_cast<std::int64_t>(location.line());
  }
}

// The line of a syntax error that toml11 has thrown.
template <class SyntaxError>
std::int64_t line_of_error(const SyntaxError& error) {
  if constexpr (requires { error.location(); }) {
    return line_of_location(error.location());
  } else {
    return line_of_location(error.errors().at(0).locations().at(0).first);
  }
}

}  // namespace tutti
