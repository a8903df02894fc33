#pragma once
// The value of an option: how each type of field is read from text, checked and written.

#include "tutti/base/enum_names.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <concepts>
#include <cstdint>
#include <functional>
#include <limits>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <system_error>
#include <type_traits>
#include <utility>
#include <vector>

namespace tutti {

enum class ValueType { text, integer, real, flag };
constexpr std::array<std::string_view, 4> enum_names(ValueType) { return {"TEXT", "INT", "FLOAT", ""}; }

// A value as text. Numbers are decimal, flags are true or false.
struct OptionValue {
  ValueType type = ValueType::text;
  std::function<std::string()> read;
  // Throws std::invalid_argument that describes the valid values, or a usage error that names the option.
  std::function<void(const std::string&)> write;
  std::vector<std::string_view> choices{};  // of a text; empty: any that `write` takes
};

// The way to a value, for rows that do not simply bind to a field.
template <class Value>
struct Access {
  std::function<Value()> get;
  std::function<void(const Value&)> set;

  Access(std::function<Value()> getter, std::function<void(const Value&)> setter)
      : get(std::move(getter)), set(std::move(setter)) {}
  Access(Value& field) : get([&field] { return field; }), set([&field](const Value& value) { field = value; }) {}
};

template <class Number>
OptionValue number(Access<Number> value, std::function<bool(Number)> is_valid, std::string valid_values) {
  constexpr bool kIsWhole = std::is_integral_v<Number>;
  const auto write = [set = std::move(value.set), is_valid = std::move(is_valid),
                      valid_values = std::move(valid_values)](const std::string& text) {
    std::string_view digits = text;
    if (digits.size() > 1 && digits.front() == '+' && digits[1] != '-') digits.remove_prefix(1);
    Number number{};
    const char* const end = digits.data() + digits.size();
    const auto [rest, status] = std::from_chars(digits.data(), end, number);
    if (!kIsWhole && status == std::errc::result_out_of_range) {
      throw std::invalid_argument("0, or a number from 2.3e-308 to 1.7e308");
    }
    if (status != std::errc{} || rest != end || !is_valid(number)) throw std::invalid_argument(valid_values);
    set(number);
  };
  return {.type = kIsWhole ? ValueType::integer : ValueType::real,
          .read = [get = std::move(value.get)] { return fmt::format("{}", get()); },
          .write = write};
}

template <class Number>
OptionValue whole(Access<Number> value, std::int64_t min = std::numeric_limits<std::int64_t>::min(),
                  std::int64_t max = std::numeric_limits<std::int64_t>::max(),
                  std::optional<std::int64_t> also_valid = std::nullopt) {
  const auto is_valid = [=](Number n) { return (n >= min && n <= max) || n == also_valid; };
  const bool is_any = min == std::numeric_limits<std::int64_t>::min();
  const std::string also = also_valid ? fmt::format("{} or ", *also_valid) : "";
  return number<Number>(
      std::move(value), is_valid,
      is_any ? "an integer from -2^63 to 2^63 - 1" : fmt::format("{}an integer from {} to {}", also, min, max));
}

template <std::signed_integral Number>
OptionValue whole(Number& value, std::int64_t min, std::int64_t max,
                  std::optional<std::int64_t> also_valid = std::nullopt) {
  return whole(Access<Number>(value), min, max, also_valid);
}

// Without bounds, the validate() of the class that uses the number checks its range.
inline OptionValue real(double& value) {
  return number<double>(
      value, [](double) { return true; }, "a number");
}

inline OptionValue real(double& value, double min, double max) {
  const auto is_valid = [=](double v) { return v >= min && v <= max; };
  return number<double>(value, is_valid, fmt::format("a number from {} to {}", min, max));
}

inline OptionValue flag(Access<bool> value) {
  const auto write = [set = std::move(value.set)](const std::string& text) {
    constexpr std::array<std::string_view, 4> kYes{"true", "on", "yes", "1"};
    constexpr std::array<std::string_view, 4> kNo{"false", "off", "no", "0"};
    const bool is_yes = std::ranges::count(kYes, text) > 0;
    if (!is_yes && std::ranges::count(kNo, text) == 0) throw std::invalid_argument("true or false, or have no value");
    set(is_yes);
  };
  return {.type = ValueType::flag,
          .read = [get = std::move(value.get)] { return std::string(get() ? "true" : "false"); },
          .write = write};
}

inline OptionValue text(std::string& value, void (*check)(const std::string&) = nullptr) {
  const auto write = [&value, check](const std::string& text) {
    if (check != nullptr) check(text);
    value = text;
  };
  return {.read = [&value] { return value; }, .write = write};
}

// The value, and the text that it was parsed from. `parse` throws a usage error that names the option.
template <class Value>
OptionValue parsed(std::string& text, Value& value, Value (*parse)(const std::string&)) {
  const auto write = [&text, &value, parse](const std::string& given) {
    value = parse(given);
    text = given;
  };
  return {.read = [&text] { return text; }, .write = write};
}

template <NamedEnum E>
OptionValue one_of(E& value) {
  const auto words = enum_names(value);
  return {.read = [&value] { return std::string(name_of(value)); },
          .write = [&value](const std::string& word) { value = value_named<E>(word).value(); },
          .choices = {words.begin(), words.end()}};
}

// The value is chosen later if it is left open; if `left_open` has no word, it must not be given to leave it so.
template <NamedEnum E>
OptionValue one_of(std::string_view left_open, std::optional<E>& value) {
  const auto words = enum_names(E{});
  OptionValue option{.read = [&value, left_open] { return std::string(value ? name_of(*value) : left_open); },
                     .write = [&value](const std::string& word) { value = value_named<E>(word); }};
  if (!left_open.empty()) option.choices = {left_open};
  option.choices.insert(option.choices.end(), words.begin(), words.end());
  return option;
}

inline OptionValue flag_words(std::string_view no, std::string_view yes, bool& value) {
  return {.read = [&value, no, yes] { return std::string(value ? yes : no); },
          .write = [&value, yes](const std::string& word) { value = word == yes; },
          .choices = {no, yes}};
}

inline OptionValue on_or_off(bool& value) {
  OptionValue option = flag_words("off", "on", value);
  option.choices = {"on", "off"};
  return option;
}

}  // namespace tutti
