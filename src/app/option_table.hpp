#pragma once
// The table of the options of a training run. Each row has the name, group and help of an option, its use on a resume
// or replay, the commands that take it, and its value with the choices or the range. The command line, configuration
// files, --dry-run, checkpoints, resumes, replays and shell completion all use this table.

#include "option_values.hpp"
#include "run_config.hpp"

#include <array>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace tutti {

enum class OptionUse {
  fixed,        // affects the result: a resume takes it from the checkpoint
  replayed,     // does not affect the result: a resume takes it from the checkpoint unless it is given again. A replay
                // of a stranger's run takes it from the run, so it must name no file or device.
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
