#pragma once
// The options of a training run, each of which is one row: its name, group and help, what a resume does with it, and
// its value with the choices or the range that it has. The command line, configuration files, --dry-run, checkpoints,
// the rules of a resume and shell completion are all read off these rows.

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
  fixed,       // part of what is computed: a resume takes it from the checkpoint
  changeable,  // ends, output and what is watched: a resume takes it from the checkpoint unless it is given anew
  place,       // where the data lie, which the data's digest stands for: likewise
  output,      // where this call's reports go, and which: a resume keeps what is asked
  call,        // about this call alone: in no file
};

// A value that users write as text, and the run reads as something else.
struct TextValue {
  std::vector<std::string_view> choices{};  // empty: any text that `write` takes
  std::function<std::string()> read;
  std::function<void(const std::string&)> write;  // throws a usage error that names the option
};
struct WholeValue {
  std::int64_t* at;
  std::int64_t least = std::numeric_limits<std::int64_t>::min();
  std::int64_t most = std::numeric_limits<std::int64_t>::max();
  std::optional<std::int64_t> besides{};  // allowed outside that range
};
// Where no range is given, the class that uses the number has one.
struct RealValue {
  double* at;
  const char* range = nullptr;
  bool (*is_right)(double) = nullptr;
};

struct RunOption {
  std::string name;  // without the dashes
  std::string group;
  std::string help;
  OptionUse use;
  std::variant<TextValue, WholeValue, RealValue, bool*> value;
};

// The rows over one configuration, which is borrowed.
std::vector<RunOption> run_options(RunConfig& config);

// Throws a usage error that names option, text and choices.
void set_text(const RunOption& option, const std::string& text);
// Likewise for a number that is out of its range.
void require_in_range(const RunOption& option);

void restore_default(const RunOption& option);

// An option's value as TOML.
std::string value_text(const RunOption& option);
// All options that belong in a file, as TOML, one a line.
std::string config_text(RunConfig config);
// Of such lines, those that are not as they are when nobody chooses them.
std::vector<std::string> chosen_options(const std::string& configuration);

// Reads TOML into the options whose names are not in `given`, and adds the names it read to `given`. Throws a usage
// error that names the file, the line and the key. What runs of earlier versions had as options is passed over.
void read_config_text(const std::string& text, const std::string& origin, RunConfig& config,
                      std::set<std::string>& given);
// Likewise what a checkpoint holds of its run, as this program takes it: an older one may have written it.
void read_stored_config(const std::string& text, const std::string& checkpoint, RunConfig& config,
                        std::set<std::string>& given);
// Likewise a user's file, in which options of earlier versions are refused. Returns what is wrong with values that are
// of the right type.
std::vector<std::string> read_config_file(const std::string& path, RunConfig& config, std::set<std::string>& given);

// Defaults that hang on what else was chosen, for options that are not in `given`.
void fit_defaults(RunConfig& config, const std::set<std::string>& given);

// What a resume runs: the checkpoint's fixed options, the given ones of the rest. Throws an input error that names
// both values where a given one contradicts the checkpoint; "auto" stands for whatever was chosen but "none".
RunConfig merge_for_resume(const RunConfig& asked, const std::set<std::string>& given,
                           const std::string& checkpoint_config, const std::string& checkpoint_path);

}  // namespace tutti
