#pragma once
// In which line of a TOML file something stands, from 1. Versions 3 and 4 of toml11 tell it by different names; which
// of them is at hand is read off the types given.

#include <cstdint>

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

}  // namespace tutti
