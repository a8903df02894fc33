#include "tutti/base/error.hpp"
#include "tutti/base/text.hpp"
#include "tutti/storage/whole_file.hpp"

#include "nearest_word.hpp"
#include "option_table.hpp"

#include <fmt/format.h>
#include <toml.hpp>

#include <algorithm>
#include <charconv>
#include <cstdint>
#include <iterator>
#include <limits>
#include <sstream>
#include <system_error>
#include <type_traits>
#include <vector>

namespace tutti {
namespace {

[[noreturn]] void refuse(const std::string& origin, std::int64_t line, const std::string& why) {
  throw Error(ErrorSource::usage, fmt::format("{}:{}: {}", origin, line, why));
}

struct Assign {
  const toml::value& value;

  // Returns what would have been right, or nothing when the value was taken.
  const char* operator()(std::string* target) const {
    if (value.is_string()) {
      *target = toml::get<std::string>(value);
    } else if (value.is_integer()) {
      *target = fmt::format("{}", value.as_integer());
    } else {
      return "a text in quotes";
    }
    return nullptr;
  }
  const char* operator()(std::int64_t* target) const {
    if (!value.is_integer()) return "a whole number";
    *target = value.as_integer();
    return nullptr;
  }
  const char* operator()(double* target) const {
    if (value.is_integer()) {
      *target = static_cast<double>(value.as_integer());
    } else if (value.is_floating()) {
      *target = value.as_floating();
    } else {
      return "a number";
    }
    return nullptr;
  }
  const char* operator()(bool* target) const {
    if (!value.is_boolean()) return "true or false";
    *target = value.as_boolean();
    return nullptr;
  }
};

toml::value parse(const std::string& text, const std::string& origin) {
  if (const auto fault = fault_of_toml(text)) refuse(origin, fault->line, std::string(fault->why));
  try {
    std::istringstream stream(text);
    return toml::parse(stream, origin);
  } catch (const toml::syntax_error& error) {
    refuse(origin, line_of_error(error), "this is no TOML: write one 'name = value' a line, texts in quotes");
  } catch (const std::exception&) {
    refuse(origin, 1, "this is no TOML: write one 'name = value' a line, texts in quotes");
  }
}

// What stands behind the '=' of a line, without the underscores that TOML allows within numbers.
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

// For such a number toml11 takes the one next to it.
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

void read_options(const std::string& text, const std::string& origin, RunConfig& config, std::set<std::string>& given,
                  bool refuses_moved) {
  const toml::value root = parse(text, origin);
  const auto options = run_options(config);
  std::vector<std::string> names;
  std::ranges::transform(options, std::back_inserter(names), &RunOption::name);
  std::set<std::string> read;
  for (const auto& [key, value] : root.as_table()) {
    const std::int64_t line = line_of_location(value.location());
    if (!moved_to(key).empty()) {  // of an earlier version
      if (refuses_moved && value != toml::value("")) {
        refuse(origin, line, fmt::format("'{}' is no longer an option: {}; remove the line", key, moved_to(key)));
      }
      continue;
    }
    const auto option = std::ranges::find(options, key, &RunOption::name);
    if (option == options.end()) {
      refuse(origin, line, fmt::format("no option is called '{}': {}", key, what_to_do(key, names, "--help")));
    }
    if (option->use == OptionUse::call) {
      refuse(origin, line, fmt::format("'{}' belongs on the command line, not in a file", key));
    }
    if (given.contains(key)) continue;
    if (const std::string written = written_value(text, line); is_out_of_range(value, written)) {
      refuse(origin, line, fmt::format("'{}' = {} is out of range", key, written));
    }
    if (const char* wanted = std::visit(Assign{value}, option->target)) {
      refuse(origin, line, fmt::format("'{}' must be {}", key, wanted));
    }
    read.insert(key);
  }
  given.merge(read);
}

}  // namespace

void read_config_text(const std::string& text, const std::string& origin, RunConfig& config,
                      std::set<std::string>& given) {
  read_options(text, origin, config, given, false);
}

void read_config_file(const std::string& path, RunConfig& config, std::set<std::string>& given) {
  std::vector<std::byte> bytes;
  try {
    bytes = read_whole(path);
  } catch (const Error& error) {
    throw Error(ErrorSource::usage, fmt::format("--config {}: {}", path, error.what()));
  }
  read_options(std::string(reinterpret_cast<const char*>(bytes.data()), bytes.size()), path, config, given, true);
}

}  // namespace tutti
