#pragma once
// UTF-8 text: validation, lower case, escaping for terminals, and checks before toml11 parses a file.

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace tutti {

bool is_utf8(std::string_view text);

std::string in_lower_case(std::string text);  // ASCII letters only

// Without the spaces at both ends.
std::string_view trimmed(std::string_view text);

// The trimmed words between the separators; a text that ends with one has no empty word after it.
std::vector<std::string> split(const std::string& text, char separator);

// Returns the text with control characters, marks that change the writing direction and invalid bytes escaped as \x1b,
// so that a name from a file cannot move the cursor or forge a line. The characters in `kept` are not escaped.
std::string printable(std::string_view text, std::string_view kept = {});

struct TomlProblem {
  std::int64_t line = 0;
  std::string_view message{};
};

// Finds text that toml11 must not be given: it follows nested values by recursion until the stack ends, takes quadratic
// time for dotted keys, and version 3 reads beyond its buffer if a text is not UTF-8. More brackets or dots than any
// sensible file has count as nested too deeply, except those in comments, in strings (unless the file has multi-line
// strings) and in headers such as [[layer]].
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
