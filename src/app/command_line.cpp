#include "command_line.hpp"

#include "tutti/app/program.hpp"
#include "tutti/backend/backend.hpp"
#include "tutti/base/error.hpp"
#include "tutti/base/process.hpp"
#include "tutti/base/text.hpp"
#include "tutti/comm/world.hpp"
#include "tutti/nn/models.hpp"
#include "tutti/storage/array_file.hpp"

#include "commands.hpp"
#include "option_errors.hpp"
#include "option_table.hpp"

#include <CLI/CLI.hpp>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <filesystem>
#include <iterator>
#include <optional>
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
    "87 replicas differ, 88 not finite.";

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

void add_run_options(CLI::App& app, const std::vector<RunOption>& options, const Command& command) {
  const std::string_view words = command.name;
  const bool of_checkpoint = words == "eval" || words == "predict";
  for (const RunOption& option : options) {
    if (!command.takes(option)) continue;
    const std::string flag = "--" + option.name;
    if (option.value.type == ValueType::flag) {
      app.add_flag(flag)->description(option.help)->group(option.group);
      continue;
    }
    app.add_option(flag)
        ->description(option.help)
        ->type_name(std::string(name_of(option.value.type)))
        ->default_str(of_checkpoint && option.use == OptionUse::data_source ? "the checkpoint's" : option.value.read())
        ->take_last()
        ->group(option.group);
  }
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
  return fmt::format("tutti {}\n{}\n{}\nHDF5 {}", version(), cpu_library_version(), mpi_library_version(),
                     array_library_version());
}

// Adds all options and operands of the command.
void add_all_options(CLI::App& app, const Command& command, Invocation& invocation) {
  app.set_help_flag("-h,--help", "print this help and exit");
  app.add_flag("--version")->description("print the versions of program and libraries and exit");
  if (&command == &commands().front()) {
    app.add_option("--completion")
        ->description("print the completion script for bash, zsh or fish and exit")
        ->type_name("TEXT")
        ->check(CLI::IsMember({"bash", "zsh", "fish"}));
    app.add_flag("--man-page")->description("print the manual page and exit");
  }
  command.add_command_options(app, invocation);
  add_run_options(app, run_options(invocation.run), command);
  add_value_checks(app);
}

// The text that was given for an option, "true" or "false" for a flag; empty if there was none.
std::optional<std::string> given_text(const CLI::App& app, const std::string& flag) {
  const CLI::Option* const option = app.get_option_no_throw(flag);
  if (option == nullptr || option->count() == 0) return std::nullopt;
  return option->as<std::string>();
}

void take_run_options(const CLI::App& app, Invocation& invocation) {
  for (const RunOption& option : run_options(invocation.run)) {
    const auto text = given_text(app, "--" + option.name);
    if (!text) continue;
    invocation.run.given.insert(option.name);
    try {
      set_value(option, *text);
    } catch (const Error& error) {
      invocation.problems.emplace_back(error.what());
    }
  }
}

Invocation begin_invocation(const Extensions* extensions) {
  Invocation invocation;
  invocation.run.extensions = extensions;
  if (extensions != nullptr && !extensions->networks.empty()) invocation.run.model = extensions->networks.front().name;
  if (extensions != nullptr && !extensions->data.empty()) invocation.run.data = extensions->data.front().name;
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

// The choices in the option's row or, for options of one command, in its type: "TEXT:{test,train,any}".
std::vector<std::string> choices_of(const std::string& name, const std::string& type,
                                    const std::vector<RunOption>& rows) {
  const auto row = std::ranges::find(rows, name, &RunOption::name);
  if (row != rows.end()) return {row->value.choices.begin(), row->value.choices.end()};
  const std::size_t begin = type.find('{');
  if (begin == std::string::npos) return {};
  return split(type.substr(begin + 1, type.find('}') - begin - 1), ',');
}

Json option_json(const CLI::Option& option, const std::vector<RunOption>& rows, const Extensions* extensions) {
  const bool is_operand = option.get_positional();
  const std::string name = is_operand ? option.get_name(true) : option.get_lnames().front();
  const std::string type = option.get_type_name();  // "INT", or "INT:" and its bounds
  const std::string value = option.get_expected_max() > 0 ? type.substr(0, type.find(':')) : "";
  const std::vector<std::string> choices = choices_of(name, type, rows);
  const bool takes_paths = choices.empty() && value == "TEXT";
  return {{"name", name},
          {"group", option.get_group()},
          {"help", option.get_description()},
          {"value", value},  // TEXT, INT, FLOAT or LIST; empty: a flag
          {"default", option.get_default_str()},
          {"words", choices.empty() ? known_names(name, extensions) : choices},
          {"paths", takes_paths},
          {"required", option.get_required()},
          {"list", is_operand && option.get_expected_max() > 1}};
}

// All commands and options as JSON, from which tools/companions/command-texts makes the manual page and the shell
// completion: the program's name and version, the exit statuses, and every command with its operands and options, the
// default one first; for companions their names, summaries and paths.
std::string commands_json(const std::string& program, const Extensions* extensions) {
  Json commands = Json::array();
  for (const Command& command : tutti::commands()) {
    CLI::App app;
    Invocation invocation = begin_invocation(extensions);
    add_all_options(app, command, invocation);
    const std::vector<RunOption> rows = run_options(invocation.run);
    Json operands = Json::array();
    Json options = Json::array();
    for (const CLI::Option* option : app.get_options()) {
      if (option->get_group().empty()) continue;  // hidden, as in the help
      (option->get_positional() ? operands : options).push_back(option_json(*option, rows, extensions));
    }
    commands.push_back({{"words", command.name}, {"does", command.help}, {"operands", operands}, {"options", options}});
  }
  for (const Companion& companion : find_companions()) {
    commands.push_back(
        {{"words", companion.name}, {"does", summary_of(companion)}, {"companion", companion.program.string()}});
  }
  return Json{{"program", program}, {"version", version()}, {"statuses", kStatuses}, {"commands", commands}}.dump();
}

// A companion prints the text, and reads a listing of all options from stdin.
Invocation& print_by_companion(Invocation& invocation, const std::string& which, const std::string& program) {
  invocation.companion = companions_folder() / "command-texts";
  invocation.arguments = {which};
  invocation.text = commands_json(program, invocation.run.extensions);
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

  const bool trains = command == &commands().front();
  const std::string call = argc > 0 ? argv[0] : program_call();
  const std::string called = name_of(call);
  const std::string name = trains ? called : fmt::format("{} {}", called, command->name);
  CLI::App app(trains ? "Trains image classifiers on MPI ranks: mpirun -np 4 " + call : command->help, name);
  add_all_options(app, *command, invocation);
  try {
    app.parse(argc - words, argv + words);
  } catch (const CLI::CallForHelp&) {
    app.footer(trains ? list_of_commands() + kStatuses : kStatuses);
    return print(invocation, app.help());
  } catch (const CLI::ParseError& error) {
    throw Error(ErrorSource::usage, parse_error_text(app, error, name + " --help"));
  }
  if (given_text(app, "--version") == "true") return print(invocation, version_text());
  if (given_text(app, "--man-page") == "true") return print_by_companion(invocation, "man", called);
  if (const auto shell = given_text(app, "--completion")) return print_by_companion(invocation, *shell, called);
  take_run_options(app, invocation);
  if (!invocation.run.config.empty()) {
    std::ranges::move(read_config_file(invocation.run.config, invocation.run), std::back_inserter(invocation.problems));
  }
  if (!invocation.problems.empty() && invocation.command_name != "check") {
    throw Error(ErrorSource::usage, invocation.problems.front());
  }
  OptimizerOptions& optimizer = invocation.run.optimizer;
  if (optimizer.kind == OptimizerKind::adamw && !invocation.run.given.contains("momentum")) optimizer.momentum = 0;
  invocation.command = command;
  return invocation;
}

}  // namespace tutti
