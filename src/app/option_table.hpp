#pragma once
// The table of the options of a training run. Each row has the name, group and help of an option, its use on a resume,
// and its value with the choices or the range. The command line, configuration files, --dry-run, checkpoints, resumes
// and shell completion all use this table.

#include "run_config.hpp"

#include <array>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

namespace tutti {

enum class OptionUse {
  fixed,        // affects the result: a resume takes it from the checkpoint
  changeable,   // does not affect the result: a resume takes it from the checkpoint unless it is given again
  data_source,  // where the data are and how they are read: as changeable, but may differ between ranks, since the
                // digests of the data are compared instead
  per_start,    // applies to one start: stored, but a resume does not take it from the checkpoint
  unstored,     // applies to one start and is stored in no file
};

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

struct RunOption {
  std::string name;  // without the dashes
  std::string group;
  std::string help;
  OptionUse use;
  OptionValue value;
};

// The rows for one configuration, which is borrowed.
std::vector<RunOption> run_options(RunConfig& config);

// Throws a usage error that names the option, the text and the valid values, and leaves the option as it is.
void set_value(const RunOption& option, const std::string& text);

// The value of an option as TOML.
std::string value_text(const RunOption& option);
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
