#include "tutti/base/error.hpp"
#include "tutti/base/text.hpp"
#include "tutti/storage/atomic_file.hpp"

#include "option_errors.hpp"
#include "option_table.hpp"

#include <fmt/format.h>
#include <toml.hpp>

#include <algorithm>
#include <array>
#include <charconv>
#include <cstdint>
#include <iterator>
#include <limits>
#include <optional>
#include <sstream>
#include <system_error>
#include <vector>

namespace tutti {
namespace {

[[noreturn]] void refuse(const std::string& origin, std::int64_t line, const std::string& why) {
  throw Error(ErrorSource::usage, fmt::format("{}:{}: {}", origin, line, why));
}

// Empty if the value has another type than the option.
std::optional<std::string> text_of(const toml::value& value, ValueType type) {
  if (value.is_integer() && type != ValueType::flag) return fmt::format("{}", value.as_integer());
  if (value.is_string() && type == ValueType::text) return toml::get<std::string>(value);
  if (value.is_floating() && type == ValueType::real) return fmt::format("{}", value.as_floating());
  if (value.is_boolean() && type == ValueType::flag) return value.as_boolean() ? "true" : "false";
  return std::nullopt;
}

const char* description_of(ValueType type) {
  constexpr std::array kDescriptions{"a quoted string", "an integer", "a number", "true or false"};
  return kDescriptions.at(static_cast<std::size_t>(type));
}

toml::value parse(const std::string& text, const std::string& origin) {
  if (const auto problem = find_toml_problem(text)) refuse(origin, problem->line, std::string(problem->message));
  try {
    std::istringstream stream(text);
    return toml::parse(stream, origin);
  } catch (const toml::syntax_error& error) {
    refuse(origin, line_of_error(error), "this is not TOML: write one 'name = value' per line, strings in quotes");
  } catch (const std::exception&) {
    refuse(origin, 1, "this is not TOML: write one 'name = value' per line, strings in quotes");
  }
}

// The value after the '=' of a line, without the underscores that TOML allows within numbers.
std::string written_value(const std::string& text, std::int64_t line) {
  std::istringstream stream(text);
  std::string written;
  for (std::int64_t i = 0; i < line; ++i) std::getline(stream, written);
  written.erase(0, written.find('=') + 1);
  written.erase(0, written.find_first_not_of(" \t+"));
  written.erase(std::min(written.find_first_of(" \t\r#"), written.size()));
  std::erase(written, '_');
  return written;
}

// toml11 replaces numbers out of range by the nearest one in range.
bool is_out_of_range(const toml::value& value, const std::string& written) {
  if (value.is_integer()) {
    const std::int64_t number = value.as_integer();
    const bool is_last = number == std::numeric_limits<std::int64_t>::max() ||  //
                         number == std::numeric_limits<std::int64_t>::min();
    return is_last && written != fmt::format("{}", number);
  }
  double number = 0;
  return value.is_floating() &&
         std::from_chars(written.data(), written.data() + written.size(), number).ec == std::errc::result_out_of_range;
}

// The replacement of an option, or of a value, that only earlier versions had; empty for others.
std::string_view replacement_of(const std::string& key, const toml::value& value) {
  if (const std::string_view option = moved_to(key); !option.empty()) return option;
  return value.is_string() ? moved_to(key + " " + toml::get<std::string>(value)) : std::string_view();
}

std::vector<std::string> read_options(const std::string& text, const std::string& origin, RunConfig& config,
                                      bool is_users) {
  const toml::value root = parse(text, origin);
  const auto options = run_options(config);
  std::vector<std::string> names;
  std::ranges::transform(options, std::back_inserter(names), &Option::name);
  std::vector<std::string> problems;
  for (const auto& [key, value] : root.as_table()) {
    const std::int64_t line = line_of_location(value.location());
    const auto option = std::ranges::find(options, key, &Option::name);
    const bool is_known = option != options.end();
    if (!is_users && !replacement_of(key, value).empty()) continue;
    if (!is_known && !moved_to(key).empty()) {
      if (value == toml::value("")) continue;  // earlier versions wrote this if it was not given
      refuse(origin, line, fmt::format("'{}' is no longer an option: {}; remove the line", key, moved_to(key)));
    }
    if (!is_known)
      refuse(origin, line, fmt::format("unknown option '{}': {}", key, suggestion_for(key, names, "--help")));
    if (option->use == OptionUse::unstored) {
      refuse(origin, line, fmt::format("'{}' belongs on the command line, not in a file", key));
    }
    if (config.given.contains(key)) continue;
    if (const std::string written = written_value(text, line); is_out_of_range(value, written)) {
      refuse(origin, line, fmt::format("'{}' = {} is out of range", key, written));
    }
    const ValueType type = option->value.type;
    const auto chosen = text_of(value, type);
    if (!chosen) refuse(origin, line, fmt::format("'{}' must be {}", key, description_of(type)));
    try {
      set_value(*option, *chosen);
    } catch (const Error& error) {
      problems.push_back(fmt::format("{}:{}: {}", origin, line, error.what()));
    }
    config.given.insert(key);
  }
  return problems;
}

// "auto" agrees with the value that was chosen when the run started.
bool contradicts(const std::string& asked, const std::string& chosen) {
  return asked != chosen && (asked != "\"auto\"" || chosen == "\"none\"");
}

}  // namespace

std::string value_text(const Option& option) {
  const std::string value = option.value.read();
  if (option.value.type == ValueType::real) {
    return value.find_first_of(".en") == std::string::npos ? value + ".0" : value;
  }
  return option.value.type == ValueType::text ? toml_text(value) : value;
}

std::string config_text(RunConfig config) {
  std::string text;
  for (const Option& option : run_options(config)) {
    if (option.use != OptionUse::unstored) text += fmt::format("{} = {}\n", option.name, value_text(option));
  }
  return text;
}

std::vector<std::string> chosen_options(const std::string& configuration) {
  const std::string defaults = "\n" + config_text({});
  std::vector<std::string> chosen;
  std::istringstream lines(configuration);
  for (std::string line; std::getline(lines, line);) {
    const bool is_default = defaults.find("\n" + line + "\n") != std::string::npos;
    if (!is_default && moved_to(line.substr(0, line.find(' '))).empty()) chosen.push_back(line);
  }
  return chosen;
}

RunConfig read_config_text(const std::string& text, const std::string& origin, RunConfig config) {
  const std::vector<std::string> problems = read_options(text, origin, config, false);
  if (!problems.empty()) throw Error(ErrorSource::usage, problems.front());
  return config;
}

std::vector<std::string> read_config_file(const std::string& path, RunConfig& config) {
  std::string text;
  try {
    text = read_file_text(path);
  } catch (const Error& error) {
    throw Error(ErrorSource::usage, fmt::format("--config {}: {}", path, error.what()));
  }
  return read_options(text, path, config, true);
}

RunConfig read_stored_config(const std::string& text, const std::string& checkpoint) {
  RunConfig config = read_config_text(text, checkpoint);
  if (!config.given.contains("exif")) config.data.applies_exif = false;  // that version ignored the EXIF orientation
  if (!config.given.contains("validation-split")) config.data.split = Split::random;  // all that there was
  if (!config.given.contains("precision"))
    config.processor.precision = Precision::fp32;  // the default of those versions
  std::optional<Wire>& wire = config.trainer.exchange.wire;
  if (config.exchange == Exchange::exact && wire.value_or(Wire::fp32) == Wire::fp32) wire = Wire::int64;  // as above
  return config;
}

RunConfig merge_for_resume(const RunConfig& asked, const std::string& checkpoint_config,
                           const std::string& checkpoint_path) {
  RunConfig from_checkpoint = read_stored_config(checkpoint_config, checkpoint_path);
  RunConfig merged = asked;
  const auto sources = run_options(from_checkpoint);
  const auto targets = run_options(merged);
  for (std::size_t i = 0; i < targets.size(); ++i) {
    if (targets[i].use == OptionUse::unstored || targets[i].use == OptionUse::per_start) continue;
    const bool asked_for = asked.given.contains(targets[i].name);
    if (asked_for && targets[i].use != OptionUse::fixed) continue;
    if (asked_for && contradicts(value_text(targets[i]), value_text(sources[i]))) {
      throw Error(ErrorSource::input,
                  fmt::format("--{} {} contradicts the checkpoint {}, which has {}: leave the option out, or start "
                              "a new run with these weights: --init-from {} and another --out",
                              targets[i].name, value_text(targets[i]), checkpoint_path, value_text(sources[i]),
                              checkpoint_path));
    }
    set_value(targets[i], sources[i].value.read());
  }
  // In versions without --schedule-epochs, --steps also ended a cosine schedule. A resume of a run of such a version
  // keeps that, so that its results do not change.
  const bool is_older = !from_checkpoint.given.contains("schedule-epochs") && !asked.given.contains("schedule-epochs");
  if (is_older && merged.trainer.learning_rate.schedule == Schedule::cosine && from_checkpoint.trainer.steps > 0)
    merged.trainer.schedule_epochs = kScheduleOfInvocation;
  // So that a run that began in tf32 can continue on CPUs, in fp32.
  if (merged.processor.precision == Precision::tf32 && !asked.given.contains("precision"))
    merged.processor.precision.reset();
  return merged;
}

}  // namespace tutti
