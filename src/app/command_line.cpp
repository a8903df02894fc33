#include "command_line.hpp"

#include "tutti/backend/backend.hpp"
#include "tutti/base/error.hpp"
#include "tutti/base/process.hpp"
#include "tutti/base/text.hpp"
#include "tutti/comm/world.hpp"
#include "tutti/storage/array_file.hpp"

#include "command_listing.hpp"
#include "command_options.hpp"
#include "companion.hpp"
#include "data_options.hpp"
#include "nearest_word.hpp"
#include "option_table.hpp"
#include "own_parts.hpp"
#include "word_faults.hpp"

#include <CLI/CLI.hpp>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string_view>
#include <utility>

namespace tutti {
namespace {

struct CommandEntry {
  const char* words;
  Command command;
  const char* does;
  bool (*takes)(const RunOption&);
  void (*add_own_options)(CLI::App&, Invocation&);
};

constexpr std::array kCommands{
    CommandEntry{"train", Command::train, "trains, or goes on from a checkpoint (when no command is given)",
                 concerns_train, add_no_options},
    CommandEntry{"check", Command::check, "refuses a training that cannot go well, and says what to do; trains nothing",
                 concerns_train, add_json_option},
    CommandEntry{"eval", Command::eval, "accuracy and loss of a checkpoint", concerns_eval, add_eval_options},
    CommandEntry{"predict", Command::predict, "labels images, or a data set's, by a checkpoint", concerns_predict,
                 add_predict_options},
    CommandEntry{"diff", Command::diff, "the first step, tensor and element in which two runs differ", concerns_nothing,
                 add_compared_words},
    CommandEntry{"inspect", Command::inspect, "what a checkpoint holds, verified", concerns_nothing,
                 add_inspect_options},
    CommandEntry{"tour", Command::tour, "how ranks train together, station by station, on these ranks", concerns_tour,
                 add_tour_options},
    CommandEntry{"bench allreduce", Command::bench_allreduce, "sums over the ranks, by message size",
                 concerns_bench_allreduce, add_allreduce_options},
    CommandEntry{"bench checkpoint", Command::bench_checkpoint, "what saving and loading the training state costs",
                 concerns_bench_step, add_checkpoint_options},
    CommandEntry{"bench exchange", Command::bench_exchange, "how gradients can meet, by rank count",
                 concerns_bench_exchange, add_exchange_options},
    CommandEntry{"bench input", Command::bench_input, "preparing batches beside the compute", concerns_bench_input,
                 add_input_options},
    CommandEntry{"bench scaling", Command::bench_scaling, "training steps, by rank count", concerns_bench,
                 add_scaling_options},
    CommandEntry{"bench step", Command::bench_step, "training steps, memory and start-up as they are",
                 concerns_bench_step, add_step_options},
    CommandEntry{"data convert", Command::data_convert, "any data set into one HDF5 file", concerns_convert,
                 add_convert_words},
    CommandEntry{"data info", Command::data_info, "what a data set holds", concerns_data, add_info_words},
    CommandEntry{"data show", Command::data_show, "a picture of a step's images as the network gets them",
                 concerns_show, add_show_options},
};

// Built-in commands, and companions behind those of their group.
std::vector<std::pair<std::string, std::string>> all_commands() {
  std::vector<std::pair<std::string, std::string>> commands;
  for (const CommandEntry& entry : kCommands) commands.emplace_back(entry.words, entry.does);
  const auto group_of = [](const auto& command) { return command.first.substr(0, command.first.find(' ')); };
  for (const Companion& companion : find_companions()) {
    const std::pair<std::string, std::string> added{companion.words, what_it_does(companion)};
    if (std::ranges::count(commands, added.first, &decltype(added)::first) > 0) continue;
    const auto last = std::ranges::find(commands.rbegin(), commands.rend(), group_of(added), group_of);
    commands.insert(last == commands.rend() ? commands.end() : last.base(), added);
  }
  return commands;
}

std::string list_of_commands() {
  std::string text = "Commands, each with its own --help:\n";
  for (const auto& [words, does] : all_commands()) text += fmt::format("  {:<18}{}\n", words, does);
  return text;
}

std::string name_of(const std::string& call) { return std::filesystem::path(call).filename(); }

struct NamedCommand {
  const CommandEntry* entry;  // null: a companion, or the list of commands is asked for
  int words;                  // that the name took
  std::optional<Companion> companion{};
};

NamedCommand command_of(int argc, const char* const* argv) {
  const std::string first = argc > 1 ? argv[1] : "";
  if (first.empty() || first.front() == '-') return {&kCommands.front(), 0};
  if (first == "help") return {nullptr, 1};
  const std::string second = argc > 2 ? argv[2] : "";
  for (const CommandEntry& entry : kCommands) {
    if (first == entry.words) return {&entry, 1};
    if (first + " " + second == entry.words) return {&entry, 2};
  }
  for (Companion& companion : find_companions()) {
    if (first == companion.words) return {nullptr, 1, std::move(companion)};
    if (first + " " + second == companion.words) return {nullptr, 2, std::move(companion)};
  }
  std::vector<std::string> known;
  std::vector<std::string> group;
  for (const auto& [words, does] : all_commands()) {
    known.push_back(words);
    if (words.starts_with(first + " ")) group.push_back(words);
  }
  if (!group.empty() && (second == "--help" || second == "-h")) return {nullptr, 2};
  const std::string help = name_of(argv[0]) + " --help";
  if (!group.empty() && second.empty()) {
    throw Error(ErrorSource::usage, fmt::format("'{}' is followed by what to do: there are {}; see {}", first,
                                                fmt::join(group, ", "), help));
  }
  const std::string written = group.empty() ? first : first + " " + second;
  throw Error(ErrorSource::usage,
              fmt::format("no command is called '{}': {}", written, what_to_do(written, known, help)));
}

void add_run_options(CLI::App& app, const std::vector<RunOption>& options, const CommandEntry& entry) {
  for (const RunOption& option : options) {
    if (!entry.takes(option)) continue;
    const std::string flag = "--" + option.name;
    CLI::Option* added = std::visit(
        [&](auto* target) -> CLI::Option* {
          if constexpr (std::is_same_v<decltype(target), bool*>) {
            return app.add_flag(flag, *target, option.help)->take_last();
          } else {
            return app.add_option(flag, *target, option.help)->capture_default_str()->take_last();
          }
        },
        option.target);
    added->group(option.group);
    const bool of_checkpoint = entry.command == Command::eval || entry.command == Command::predict;
    if (of_checkpoint && option.use == OptionUse::place) added->default_str("the checkpoint's");
  }
}

// They go into records, which are JSON, and into checkpoints.
void refuse_other_than_utf8(const std::vector<std::string>& words) {
  for (const std::string& word : words) {
    if (is_utf8(word)) continue;
    std::string shown;
    for (const char c : word) shown += c < ' ' || c > '~' ? fmt::format("\\x{:02x}", c & 0xFF) : std::string(1, c);
    throw Error(ErrorSource::usage, fmt::format("'{}' is no UTF-8: give the file or folder another name", shown));
  }
}

std::string version_text() {
  return fmt::format("tutti {}\n{}\n{}\nHDF5 {}", version(), cpu_library_version(), mpi_library_version(),
                     array_library_version());
}

struct WantedText {
  bool version = false;
  std::string completion;  // the shell
  bool manual = false;
};

// Adds all that the command's words can fill in.
void furnish(CLI::App& app, const CommandEntry& entry, Invocation& invocation, WantedText& wanted) {
  app.set_help_flag("-h,--help", "print this and end");
  app.add_flag("--version", wanted.version, "print the versions of program and libraries and end");
  if (entry.command == Command::train) {
    app.add_option("--completion", wanted.completion, "print what completes words in bash, zsh or fish and end")
        ->check(CLI::IsMember({"bash", "zsh", "fish"}));
    app.add_flag("--man-page", wanted.manual, "print the manual page and end");
  }
  entry.add_own_options(app, invocation);
  add_run_options(app, run_options(invocation.run), entry);
  take_numbers_as_written(app);
}

Invocation begin_invocation(const OwnParts* own) {
  Invocation invocation;
  invocation.run.own = own;
  if (own != nullptr && !own->networks.empty()) invocation.run.model = own->networks.front().name;
  if (own != nullptr && !own->data.empty()) invocation.run.data = own->data.front().name;
  return invocation;
}

Invocation& print(Invocation& invocation, std::string text) {
  invocation.command = Command::print_text;
  invocation.called = "an option that only prints, as --help";
  invocation.text = std::move(text);
  return invocation;
}

// Printed by a companion, which finds a listing of all options in its stdin.
Invocation& print_by_companion(Invocation& invocation, const std::string& which, const std::string& program) {
  invocation.command = Command::companion;
  invocation.companion = companions_folder() / "command-texts";
  invocation.words = {which};
  invocation.text = command_listing(program, invocation.run.own);
  return invocation;
}

}  // namespace

const char* const kStatuses =
    "Exit status: 0 done, 1 different or doomed, 64 usage, 65 bad input, 66 no usable checkpoint, 70 internal,\n"
    "73 cannot save, 74 cannot read, 75 stopped on request after a good checkpoint, 86 a rank hangs,\n"
    "87 replicas differ, 88 no longer finite.";

void visit_commands(const OwnParts* own, const std::function<void(const FurnishedCommand&)>& visit) {
  for (const CommandEntry& entry : kCommands) {
    CLI::App app;
    Invocation invocation = begin_invocation(own);
    WantedText wanted;
    furnish(app, entry, invocation, wanted);
    visit({entry.words, entry.does, app});
  }
}

Invocation parse_command_line(int argc, const char* const* argv, const OwnParts* own) {
  Invocation invocation = begin_invocation(own);
  invocation.words.assign(argv, argv + argc);
  refuse_other_than_utf8(invocation.words);
  const auto [entry, words, companion] = command_of(argc, argv);
  if (companion && invocation.words.back() == "--version") return print(invocation, version_text());
  if (companion) {
    invocation.command = Command::companion;
    invocation.companion = companion->program;
    invocation.words.erase(invocation.words.begin(), invocation.words.begin() + 1 + words);
    return invocation;
  }
  if (entry == nullptr) return print(invocation, list_of_commands());
  invocation.command = entry->command;
  invocation.called = entry->words;

  const bool trains = entry->command == Command::train;
  const std::string call = argc > 0 ? argv[0] : program_call();
  const std::string called = name_of(call);
  const std::string name = trains ? called : fmt::format("{} {}", called, entry->words);
  CLI::App app(trains ? "Trains image classifiers on MPI ranks: mpirun -np 4 " + call : entry->does, name);
  WantedText wanted;
  furnish(app, *entry, invocation, wanted);
  try {
    app.parse(argc - words, argv + words);
  } catch (const CLI::CallForHelp&) {
    app.footer(trains ? list_of_commands() + kStatuses : kStatuses);
    return print(invocation, app.help());
  } catch (const CLI::ParseError& error) {
    throw Error(ErrorSource::usage, fault_of_words(app, error, name + " --help"));
  }
  if (wanted.version) return print(invocation, version_text());
  if (wanted.manual) return print_by_companion(invocation, "man", called);
  if (!wanted.completion.empty()) return print_by_companion(invocation, wanted.completion, called);
  for (const RunOption& option : run_options(invocation.run)) {
    const CLI::Option* parsed = app.get_option_no_throw("--" + option.name);
    if (parsed != nullptr && parsed->count() > 0) invocation.given.insert(option.name);
  }
  if (!invocation.run.config.empty()) read_config_file(invocation.run.config, invocation.run, invocation.given);
  fit_defaults(invocation.run, invocation.given);
  return invocation;
}

}  // namespace tutti
