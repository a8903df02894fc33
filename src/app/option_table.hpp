#pragma once
// The table of the options of a training run. Each row has the name, group and help of an option, its use on a resume,
// and its value with the choices or the range. The command line, configuration files, --dry-run, checkpoints, resumes
// and shell completion all use this table.

#include "run_config.hpp"

#include <cstdint>
#include <functional>
#include <limits>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

namespace tutti {

enum class OptionUse {
  fixed,       // affects the result: a resume takes it from the checkpoint
  changeable,  // does not affect the result: a resume takes it from the checkpoint unless it is given again
  location,    // path of the data, whose digest is compared instead: as changeable
  output,      // output of this invocation: a resume does not take it from the checkpoint
  invocation,  // applies to this invocation alone: stored in no file
};

// A value that users write as text, which is parsed or looked up.
struct TextValue {
  std::vector<std::string_view> choices{};  // empty: any text that `write` takes
  std::function<std::string()> read;
  std::function<void(const std::string&)> write;  // throws a usage error that names the option
};
struct IntValue {
  std::int64_t* target;
  std::int64_t min = std::numeric_limits<std::int64_t>::min();
  std::int64_t max = std::numeric_limits<std::int64_t>::max();
  std::optional<std::int64_t> also_valid{};  // a value outside that range
};
// If no range is given here, the validate() of the class that uses the number checks it.
struct RealValue {
  double* target;
  const char* range = nullptr;
  bool (*is_valid)(double) = nullptr;
};

struct RunOption {
  std::string name;  // without the dashes
  std::string group;
  std::string help;
  OptionUse use;
  std::variant<TextValue, IntValue, RealValue, bool*> value;
};

// The rows for one configuration, which is borrowed.
std::vector<RunOption> run_options(RunConfig& config);

// Throws a usage error that names the option, the text and the choices.
void set_text(const RunOption& option, const std::string& text);
// Throws a usage error if the option's number is out of range.
void require_in_range(const RunOption& option);

void restore_default(const RunOption& option);

// The value of an option as TOML.
std::string value_text(const RunOption& option);
// All options that may be in a file, as TOML, one per line.
std::string config_text(RunConfig config);
// The lines of such a text that differ from the defaults.
std::vector<std::string> chosen_options(const std::string& configuration);

// Reads TOML into the options whose names are not in `given`, and adds the names that it read to `given`. Options that
// only earlier versions had are skipped. Throws a usage error that names the file, the line and the key.
void read_config_text(const std::string& text, const std::string& origin, RunConfig& config,
                      std::set<std::string>& given);
// The same for the configuration in a checkpoint, with the defaults of the version that wrote it.
void read_stored_config(const std::string& text, const std::string& checkpoint, RunConfig& config,
                        std::set<std::string>& given);
// The same for a user's file, where options of earlier versions are errors. Returns the errors of values that have
// the right type.
std::vector<std::string> read_config_file(const std::string& path, RunConfig& config, std::set<std::string>& given);

// Sets the defaults that depend on other options, for options that are not in `given`.
void fit_defaults(RunConfig& config, const std::set<std::string>& given);

// The configuration of a resume: fixed options are the checkpoint's, others may be given again. Throws an input error
// that names both values if a given one contradicts the checkpoint; "auto" agrees with every value but "none".
RunConfig merge_for_resume(const RunConfig& asked, const std::set<std::string>& given,
                           const std::string& checkpoint_config, const std::string& checkpoint_path);

}  // namespace tutti
