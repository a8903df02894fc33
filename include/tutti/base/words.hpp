#pragma once
// The words by which users name the values of an enumeration. They stand once, beside the enumeration and in the order
// of its values, as `constexpr std::array<std::string_view, N> words_of(E)`. Options, refusals, records and shell
// completion all take them from there.

#include <array>
#include <cstddef>
#include <optional>
#include <string_view>

namespace tutti {

template <class E>
concept Worded = requires(E value) {
  words_of(value);
};

template <Worded E>
constexpr std::string_view name_of(E value) {
  return words_of(value).at(static_cast<std::size_t>(value));
}

// Empty for a word that names none of the values.
template <Worded E>
constexpr std::optional<E> value_named(std::string_view word) {
  const auto words = words_of(E{});
  for (std::size_t i = 0; i < words.size(); ++i) {
    if (words.at(i) == word) return static_cast<E>(i);
  }
  return std::nullopt;
}

}  // namespace tutti
