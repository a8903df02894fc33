#include "command_line.hpp"

#include "tutti/app/program.hpp"
#include "tutti/base/error.hpp"
#include "tutti/base/process.hpp"
#include "tutti/base/text.hpp"
#include "tutti/comm/world.hpp"
#include "tutti/nn/model_file.hpp"
#include "tutti/storage/array_file.hpp"

#include "commands.hpp"
#include "option_errors.hpp"
#include "option_table.hpp"
#include "option_words.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <array>
#include <filesystem>
#include <iterator>
#include <optional>
#include <span>
#include <string_view>
#include <utility>

namespace tutti {
namespace {

// Built-in commands, and companions after the commands of their group.
std::vector<std::pair<std::string, std::string>> all_commands() {
  std::vector<std::pair<std::string, std::string>> commands;
  for (const Command& command : tutti::commands()) commands.emplace_back(command.name, command.help);
  const auto group_of = [](const auto& command) { return command.first.substr(0, command.first.find(' ')); };
  for (const Companion& companion : find_companions()) {
    const std::pair<std::string, std::string> added{companion.name, summary_of(companion)};
    if (std::ranges::count(commands, added.first, &decltype(added)::first) > 0) continue;
    const auto last = std::ranges::find(commands.rbegin(), commands.rend(), group_of(added), group_of);
    commands.insert(last == commands.rend() ? commands.end() : last.base(), added);
  }
  return commands;
}

// All commands, or those of a group, as "data ".
std::string list_of_commands(const std::string& group = "") {
  std::string text = "Commands, each with its own --help:\n";
  for (const auto& [words, help] : all_commands()) {
    if (words.starts_with(group)) text += fmt::format("  {:<18}{}\n", words, help);
  }
  return text;
}

std::string name_of(const std::string& call) { return std::filesystem::path(call).filename(); }

constexpr const char* kStatuses =
    "Exit status: 0 done, 1 negative result (diff, check), 64 usage, 65 bad input, 66 no usable checkpoint, 70 "
    "internal,\n"
    "73 cannot save, 74 cannot read, 75 stopped on request (with --out, after a good checkpoint), 86 a rank hangs,\n"
    "87 replicas differ or a result is wrong, 88 not finite.";

bool is_default(const Command& command) { return &command == &commands().front(); }

bool takes(const Command& command, const Option& option) {
  return option.takers != kNoCommand && (command.takers == kTraining || (command.takers & option.takers) != 0);
}

struct NamedCommand {
  const Command* command;  // null: a companion, or the list of commands
  int words;               // number of words in the name
  std::optional<Companion> companion{};
};

NamedCommand command_of(int argc, const char* const* argv) {
  const std::string first = argc > 1 ? argv[1] : "";
  if (first.empty() || first.front() == '-') return {&commands().front(), 0};
  if (first == "help") return {nullptr, 1};
  const std::string second = argc > 2 ? argv[2] : "";
  for (const Command& command : commands()) {
    if (first == command.name) return {&command, 1};
    if (first + " " + second == command.name) return {&command, 2};
  }
  for (Companion& companion : find_companions()) {
    if (first == companion.name) return {nullptr, 1, std::move(companion)};
    if (first + " " + second == companion.name) return {nullptr, 2, std::move(companion)};
  }
  std::vector<std::string> known;
  std::vector<std::string> group;
  for (const auto& [words, summary] : all_commands()) {
    known.push_back(words);
    if (words.starts_with(first + " ")) group.push_back(words);
  }
  if (!group.empty() && (second == "--help" || second == "-h")) return {nullptr, 2};
  const std::string help = name_of(argv[0]) + " --help";
  if (!group.empty() && second.empty()) {
    throw Error(ErrorSource::usage,
                fmt::format("'{}' needs a subcommand, one of {}; see {}", first, fmt::join(group, ", "), help));
  }
  const std::string written = group.empty() ? first : first + " " + second;
  throw Error(ErrorSource::usage,
              fmt::format("unknown command '{}': {}", written, suggestion_for(written, known, help)));
}

// The arguments are written into records, which are JSON, and into checkpoints.
void require_utf8_argv(const std::vector<std::string>& arguments) {
  for (const std::string& argument : arguments) {
    if (is_utf8(argument)) continue;
    std::string shown;
    for (const char c : argument) shown += c < ' ' || c > '~' ? fmt::format("\\x{:02x}", c & 0xFF) : std::string(1, c);
    throw Error(ErrorSource::usage, fmt::format("'{}' is not valid UTF-8: rename the file or folder", shown));
  }
}

std::string version_text() {
  return fmt::format("tutti {}\n{}\nHDF5 {}", version(), mpi_library_version(), array_library_version());
}

// What a command line may ask for instead of running a command.
struct PrintRequest {
  bool help = false;
  bool version = false;
  bool man_page = false;
  bool listing = false;
  std::string completion;
};

constexpr std::array<std::string_view, 3> kShells{"bash", "zsh", "fish"};

// Operands first, then the options of every command, of this command, and of a run.
std::vector<Option> options_of(const Command& command, Invocation& invocation, PrintRequest& request) {
  std::vector<Option> options = command.own_options(invocation);
  const char* const general = "Options";
  std::vector<Option> printing{
      own_option("help", general, "print this help and exit", flag(request.help)),
      own_option("version", general, "print the versions of program and libraries and exit", flag(request.version))};
  if (is_default(command)) {
    printing.push_back(own_option("completion", general, "print the completion script for bash, zsh or fish and exit",
                                  text(request.completion)));
    printing.back().value.choices = {kShells.begin(), kShells.end()};
    printing.push_back(own_option("man-page", general, "print the manual page and exit", flag(request.man_page)));
    printing.push_back(own_option("list-options", general, "", flag(request.listing)));  // for companions
  }
  options.insert(std::ranges::find(options, false, &Option::is_operand), printing.begin(), printing.end());
  for (Option& option : run_options(invocation.run)) {
    if (!takes(command, option)) continue;
    const bool of_checkpoint = (command.takers & kScoring) != 0 && option.use == OptionUse::data_source;
    if (of_checkpoint) option.shown_default = "the checkpoint's";
    options.push_back(std::move(option));
  }
  return options;
}

// Keeps what is wrong with values for a check, which reports all.
void write_values(const GivenWords& given, Invocation& invocation) {
  for (const auto& [option, text] : given) {
    if (option->takers != kNoCommand) invocation.run.given.insert(option->name);
    try {
      set_value(*option, text);
    } catch (const Error& error) {
      invocation.problems.emplace_back(error.what());
    }
  }
}

Invocation begin_invocation(const Extensions* extensions) {
  Invocation invocation;
  invocation.run.extensions = extensions;
  if (extensions != nullptr && !extensions->networks.empty()) invocation.run.model = extensions->networks.front().name;
  if (extensions != nullptr && !extensions->data.empty()) invocation.run.data.train = extensions->data.front().name;
  return invocation;
}

Invocation& print(Invocation& invocation, std::string text) {
  invocation.command_name = "an option that only prints, such as --help";
  invocation.text = std::move(text);
  return invocation;
}

using Json = nlohmann::ordered_json;

// The names that an option accepts in addition to paths.
std::vector<std::string> known_names(const std::string& option, const Extensions* extensions) {
  std::vector<std::string> names;
  if (option == "model") {
    if (extensions != nullptr) {
      for (const NetworkSpec& network : extensions->networks) names.push_back(network.name);
    }
    for (std::string& name : built_in_model_names()) names.push_back(std::move(name));
  } else if (option == "data" || option == "source") {
    if (extensions != nullptr) {
      for (const CustomData& data : extensions->data) names.push_back(data.name);
    }
    names.emplace_back("glyphs");
  }
  return names;
}

Json option_json(const Option& option, const Extensions* extensions) {
  const auto& choices = option.value.choices;
  return {{"name", option.name},
          {"group", option.group},
          {"help", option.help},
          {"value", name_of(option.value.type)},  // TEXT, INT or FLOAT; empty: a flag
          {"default", default_of(option)},
          {"words", choices.empty() ? known_names(option.name, extensions)
                                    : std::vector<std::string>(choices.begin(), choices.end())},
          {"paths", choices.empty() && option.value.type == ValueType::text},
          {"required", option.is_required},
          {"list", option.is_list},
          {"use", name_of(option.use)}};
}

// All commands and options as JSON, for companions such as tools/companions/command-texts, which makes the manual page
// and the shell completion: the program's version, the exit statuses, and every command with its operands and options,
// the default one first; for companions their names, summaries and paths.
std::string commands_json(const Extensions* extensions) {
  Json commands = Json::array();
  for (const Command& command : tutti::commands()) {
    Invocation invocation = begin_invocation(extensions);
    PrintRequest request;
    Json operands = Json::array();
    Json options = Json::array();
    for (const Option& option : options_of(command, invocation, request)) {
      if (option.help.empty()) continue;  // hidden, as in the help
      (option.is_operand ? operands : options).push_back(option_json(option, extensions));
    }
    commands.push_back({{"words", command.name}, {"does", command.help}, {"operands", operands}, {"options", options}});
  }
  for (const Companion& companion : find_companions()) {
    commands.push_back(
        {{"words", companion.name}, {"does", summary_of(companion)}, {"companion", companion.program.string()}});
  }
  return Json{{"version", version()}, {"statuses", kStatuses}, {"commands", commands}}.dump();
}

Invocation& print_by_companion(Invocation& invocation, const std::string& which) {
  invocation.companion = companions_folder() / "command-texts";
  invocation.arguments = {which};
  return invocation;
}

}  // namespace

Invocation parse_command_line(int argc, const char* const* argv, const Extensions* extensions) {
  Invocation invocation = begin_invocation(extensions);
  invocation.arguments.assign(argv, argv + argc);
  require_utf8_argv(invocation.arguments);
  const auto [command, words, companion] = command_of(argc, argv);
  if (companion && invocation.arguments.back() == "--version") return print(invocation, version_text());
  if (companion) {
    invocation.companion = companion->program;
    invocation.arguments.erase(invocation.arguments.begin(), invocation.arguments.begin() + 1 + words);
    return invocation;
  }
  if (command == nullptr) {
    return print(invocation, list_of_commands(words == 2 ? invocation.arguments[1] + " " : ""));
  }
  invocation.command_name = command->name;

  const bool trains = is_default(*command);
  const std::string call = argc > 0 ? argv[0] : program_call();
  const std::string name = trains ? name_of(call) : fmt::format("{} {}", name_of(call), command->name);
  PrintRequest request;
  const std::vector<Option> options = options_of(*command, invocation, request);
  const std::span words_after(invocation.arguments.begin() + std::min(1 + words, argc), invocation.arguments.end());
  const GivenWords given = read_words(words_after, options, name + " --help");
  if (given_text(given, "help")) {
    return print(invocation,
                 fmt::format("{}\nUsage: {} {}\n{}\n{}{}",
                             trains ? "Trains image classifiers on MPI ranks: mpirun -np 4 " + call : command->help,
                             name, usage_of(options), help_of(options), trains ? list_of_commands() : "", kStatuses));
  }
  write_values(given, invocation);
  if (request.version) return print(invocation, version_text());
  if (request.listing) return print(invocation, commands_json(extensions));
  if (request.man_page) return print_by_companion(invocation, "man");
  if (!request.completion.empty()) return print_by_companion(invocation, request.completion);
  if (!invocation.run.config.empty()) {
    std::ranges::move(read_config_file(invocation.run.config, invocation.run), std::back_inserter(invocation.problems));
  }
  if (!invocation.problems.empty() && invocation.command_name != "check") {
    throw Error(ErrorSource::usage, invocation.problems.front());
  }
  OptimizerOptions& optimizer = invocation.run.trainer.optimizer;
  if (optimizer.kind == OptimizerKind::adamw && !invocation.run.given.contains("momentum")) optimizer.momentum = 0;
  invocation.command = command;
  return invocation;
}

}  // namespace tutti
