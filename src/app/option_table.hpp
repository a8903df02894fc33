#pragma once
// The options of a training run, once: their names, groups, help and targets. The command line, configuration files,
// --dry-run, checkpoints and the rules of a resume are all read off this table.

#include "run_config.hpp"

#include <cstdint>
#include <set>
#include <string>
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

struct RunOption {
  using Target = std::variant<std::string*, std::int64_t*, double*, bool*>;

  std::string name;  // without the dashes
  std::string group;
  std::string help;
  OptionUse use;
  Target target;
};

// The table over one configuration, which is borrowed.
std::vector<RunOption> run_options(RunConfig& config);

// An option's value as TOML.
std::string value_text(const RunOption& option);
// All options that belong in a file, as TOML, one a line.
std::string config_text(RunConfig config);
// Of such lines, those that are not as they are when nobody chooses them.
std::vector<std::string> chosen_options(const std::string& configuration);

// Reads TOML into the options whose names are not in `given`, and adds the names it read to `given`. Throws a usage
// error that names the file, the line and the key. What runs of earlier versions had as options is passed over in the
// text of a run, and refused in a user's file.
void read_config_text(const std::string& text, const std::string& origin, RunConfig& config,
                      std::set<std::string>& given);
// Likewise what a checkpoint holds of its run, as this program takes it: an older one may have written it.
void read_stored_config(const std::string& text, const std::string& checkpoint, RunConfig& config,
                        std::set<std::string>& given);
void read_config_file(const std::string& path, RunConfig& config, std::set<std::string>& given);

// Defaults that hang on what else was chosen, for options that are not in `given`.
void fit_defaults(RunConfig& config, const std::set<std::string>& given);

// What a resume runs: the checkpoint's fixed options, the given ones of the rest. Throws an input error that names
// both values where a given one contradicts the checkpoint; "auto" stands for whatever was chosen but "none".
RunConfig merge_for_resume(const RunConfig& asked, const std::set<std::string>& given,
                           const std::string& checkpoint_config, const std::string& checkpoint_path);

}  // namespace tutti
