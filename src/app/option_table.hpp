#pragma once
// The table of the options of a training run. Each row has the name, group and help of an option, its use on a resume
// or replay, the commands that take it, and its value with the choices or the range. The command line, configuration
// files, --dry-run, checkpoints, resumes, replays and shell completion all use this table.

#include "tutti/base/enum_names.hpp"

#include "run_config.hpp"

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

enum class OptionUse {
  fixed,        // affects the result: a resume takes it from the checkpoint
  replayed,     // may differ in a resume, which takes it from the checkpoint unless it is given again. A replay of a
                // stranger's run takes it from the run, so it must name no file or device.
  changeable,   // the same, but a replay does not take it
  data_source,  // where the data are and how they are read: as replayed, but may differ between ranks, since the
                // digests of the data are compared instead
  per_start,    // applies to one start: stored, but a resume does not take it from the checkpoint
  unstored,     // applies to one start and is stored in no file
};
constexpr std::array<std::string_view, 6> enum_names(OptionUse) {
  return {"fixed", "replayed", "changeable", "data source", "per start", "unstored"};
}

// The commands that take an option of a run. All options are taken by train and check.
enum Takers : unsigned {
  kNoCommand = 0,
  kTraining = 1U << 0,
  kEval = 1U << 1,
  kPredict = 1U << 2,
  kBenchStep = 1U << 3,  // and bench checkpoint
  kBenchScaling = 1U << 4,
  kBenchExchange = 1U << 5,
  kBenchInput = 1U << 6,
  kBenchAllreduce = 1U << 7,
  kTour = 1U << 8,
  kDataInfo = 1U << 9,
  kDataConvert = 1U << 10,
  kDataShow = 1U << 11,
  kScreen = 1U << 12,
  kScoring = kEval | kPredict,
  kUpdating = kBenchStep | kBenchScaling | kBenchExchange,
  kComputing = kUpdating | kBenchInput,
  kBatching = kComputing | kTour | kDataShow,
  kRunning = kScoring | kComputing | kBenchAllreduce | kTour,  // on ranks that may stall
  kDescribing = kDataInfo | kDataConvert,
};

// Values: how each type of field is read from text, checked and written.

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

struct Option {
  std::string name;  // without the dashes
  std::string group;
  std::string help;
  OptionUse use = OptionUse::unstored;
  unsigned takers = kNoCommand;
  OptionValue value{};
  bool is_operand = false;  // a word without a name
  bool is_required = false;
  bool is_list = false;                        // each word is written
  std::optional<std::string> shown_default{};  // instead of the value
};

// One that only some command has.
Option own_option(std::string name, std::string group, std::string help, OptionValue value);
// A required one.
Option operand(std::string name, std::string help, OptionValue value);

// The rows for one configuration, which is borrowed.
std::vector<Option> run_options(RunConfig& config);

// Throws a usage error that names the option, the text and the valid values, and leaves the option as it is.
void set_value(const Option& option, const std::string& text);

// The value of an option as TOML.
std::string value_text(const Option& option);
// All options that may be in a file, as TOML, one per line.
std::string config_text(RunConfig config);
// The lines of such a text that differ from the defaults.
std::vector<std::string> chosen_options(const std::string& configuration);

// Returns the configuration with the options of a TOML text, except those that config.given names. Options that only
// earlier versions had are skipped. Throws a usage error that names the file, the line and the key.
RunConfig read_config_text(const std::string& text, const std::string& origin, RunConfig config = {});
// The same for the configuration in a checkpoint, with the defaults of the version that wrote it.
RunConfig read_stored_config(const std::string& text, const std::string& checkpoint);
// Reads a user's file, where options of earlier versions are errors, into `config`. Returns the errors of values that
// have the right type.
std::vector<std::string> read_config_file(const std::string& path, RunConfig& config);

// The configuration of a resume: fixed options are the checkpoint's, others may be given again. Throws an input error
// that names both values if a given one contradicts the checkpoint; "auto" agrees with every value but "none".
RunConfig merge_for_resume(const RunConfig& asked, const std::string& checkpoint_config,
                           const std::string& checkpoint_path);

}  // namespace tutti
