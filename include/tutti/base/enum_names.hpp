#pragma once
// The names of the values of an enumeration, as users write them. They are defined once, next to the enumeration and in
// the order of its values, as `constexpr std::array<std::string_view, N> enum_names(E)`. Options, error messages,
// records and shell completion all use them.

#include <array>
#include <cstddef>
#include <optional>
#include <string_view>

namespace tutti {

template <class E>
concept NamedEnum = requires(E value) {
  enum_names(value);
};

template <NamedEnum E>
constexpr std::string_view name_of(E value) {
  return enum_names(value).at(static_cast<std::size_t>(value));
}

// Empty if no value has this name.
template <NamedEnum E>
constexpr std::optional<E> value_named(std::string_view name) {
  const auto names = enum_names(E{});
  for (std::size_t i = 0; i < names.size(); ++i) {
    if (names.at(i) == name) return static_cast<E>(i);
  }
  return std::nullopt;
}

}  // namespace tutti
