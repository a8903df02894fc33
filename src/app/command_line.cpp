#include "command_line.hpp"

#include "tutti/backend/backend.hpp"
#include "tutti/base/error.hpp"
#include "tutti/base/version.hpp"
#include "tutti/comm/world.hpp"
#include "tutti/storage/array_file.hpp"

#include "option_table.hpp"

#include <CLI/CLI.hpp>
#include <fmt/format.h>

#include <array>
#include <memory>
#include <string_view>
#include <utility>

namespace tutti {
namespace {

constexpr const char* kCommands =
    "Commands: train (when none is given), bench allreduce, bench input, bench scaling, data convert, data info.\n"
    "Each has its own --help.\n"
    "Exit status: 0 done, 64 usage, 65 bad input, 66 no usable checkpoint, 70 internal, 73 cannot save,\n"
    "74 cannot read, 88 no longer finite.";

// Commands of two words.
struct NamedCommand {
  std::string_view group;
  std::string_view word;
  Command command;
  std::string_view what;
};
constexpr std::array<NamedCommand, 5> kNamedCommands{{
    {"bench", "allreduce", Command::bench_allreduce, "sums over the ranks, by message size"},
    {"bench", "input", Command::bench_input, "preparing batches beside the compute"},
    {"bench", "scaling", Command::bench_scaling, "training steps, by rank count"},
    {"data", "convert", Command::data_convert, "any data set into one HDF5 file"},
    {"data", "info", Command::data_info, "what a data set holds"},
}};

// A measurement decides by itself how long it runs, on how many parts, and what it keeps.
bool concerns_benches(const RunOption& option) {
  for (const char* own : {"epochs", "steps", "parts"}) {
    if (option.name == own) return false;
  }
  return option.use == OptionUse::fixed || option.use == OptionUse::place || option.group == "Ranks and devices";
}

bool concerns_data(const RunOption& option) {
  return option.name == "test-data" || option.name == "validation-ratio" || option.name == "skip-bad-images" ||
         option.name == "image-size" || option.name == "seed";
}

bool is_about_data(Command command) { return command == Command::data_convert || command == Command::data_info; }

void add_run_options(CLI::App& app, const std::vector<RunOption>& options, Command command) {
  for (const RunOption& option : options) {
    const bool concerns =
        command == Command::train || (is_about_data(command) ? concerns_data(option) : concerns_benches(option));
    if (!concerns) continue;
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
  }
}

void add_data_words(CLI::App& app, Invocation& invocation) {
  app.add_option("source", invocation.run.data, "the data set, as --data of train names it")->required();
  if (invocation.command == Command::data_convert) {
    app.add_option("target", invocation.target, "the file to write, DST.h5")->required();
  }
}

void add_bench_options(CLI::App& app, Invocation& invocation) {
  if (invocation.command == Command::bench_input) {
    app.add_option("--seconds", invocation.input.seconds, "of each measurement")
        ->check(CLI::Range(0.01, 3600.0))
        ->capture_default_str()
        ->group("Bench");
  } else {
    app.add_option("--ranks", invocation.ranks, "rank counts to measure, as 1,2,4; none: 1, 2, 4 .. all")
        ->group("Bench");
  }
  app.add_option("--json", invocation.json, "write the results to this file, too")->group("Bench");
}

void add_allreduce_options(CLI::App& app, Invocation& invocation) {
  AllreduceBench& bench = invocation.allreduce;
  const auto positive = CLI::Range(std::int64_t{1}, std::int64_t{1} << 40);
  app.add_option("--min-bytes", bench.min_bytes, "smallest message")
      ->check(positive)
      ->capture_default_str()
      ->group("Bench");
  app.add_option("--max-bytes", bench.max_bytes, "largest message")
      ->check(positive)
      ->capture_default_str()
      ->group("Bench");
  app.add_option("--repeats", bench.repeats, "timed repetitions of each")
      ->check(positive)
      ->capture_default_str()
      ->group("Bench");
}

void add_scaling_options(CLI::App& app, Invocation& invocation) {
  ScalingBench& bench = invocation.scaling;
  const auto positive = CLI::Range(std::int64_t{1}, std::int64_t{1} << 40);
  app.add_option("--mode", bench.mode, "strong (one batch shared), weak (a batch per rank) or both")
      ->check(CLI::IsMember({"strong", "weak", "both"}))
      ->capture_default_str()
      ->group("Bench");
  app.add_option("--warmup-steps", bench.warmup_steps, "steps before the clock runs")
      ->check(positive)
      ->capture_default_str()
      ->group("Bench");
  app.add_option("--timed-steps", bench.timed_steps, "steps measured")
      ->check(positive)
      ->capture_default_str()
      ->group("Bench");
}

std::string words_of(std::string_view group) {
  std::string text;
  for (const NamedCommand& one : kNamedCommands) {
    if (one.group == group) text += fmt::format("trainer {} {:<11} {}\n", group, one.word, one.what);
  }
  return text + "Each has its own --help.";
}

// The command that the first words name, and how many words that took.
std::pair<Command, int> command_of(int argc, const char* const* argv) {
  const std::string_view first = argc > 1 ? argv[1] : "";
  const std::string_view second = argc > 2 ? argv[2] : "";
  if (first == "train") return {Command::train, 1};
  if (first.empty() || first.front() == '-') return {Command::train, 0};
  bool is_group = false;
  for (const NamedCommand& one : kNamedCommands) {
    if (one.group != first) continue;
    is_group = true;
    if (one.word == second) return {one.command, 2};
  }
  if (!is_group) {
    throw Error(ErrorSource::usage,
                fmt::format("no command is called '{}': train, bench or data; see trainer --help", first));
  }
  if (second == "--help" || second == "-h") return {Command::print_text, 2};
  throw Error(ErrorSource::usage, fmt::format("'{} {}' is no command; see trainer --help", first, second));
}

std::string version_text() {
  return fmt::format("tutti {}\n{}\n{}\nHDF5 {}", version(), cpu_library_version(), mpi_library_version(),
                     array_library_version());
}

void add_options(CLI::App& app, const std::vector<RunOption>& options, Invocation& invocation) {
  const Command command = invocation.command;
  if (is_about_data(command)) {
    add_data_words(app, invocation);
  } else if (command != Command::train) {
    add_bench_options(app, invocation);
  }
  if (command == Command::bench_scaling) add_scaling_options(app, invocation);
  if (command == Command::bench_allreduce) {
    add_allreduce_options(app, invocation);
  } else {
    add_run_options(app, options, command);
  }
}

}  // namespace

Invocation parse_command_line(int argc, const char* const* argv) {
  Invocation invocation;
  invocation.words.assign(argv, argv + argc);
  const auto [command, words] = command_of(argc, argv);
  invocation.command = command;
  if (command == Command::print_text) {
    invocation.text = words_of(argv[1]);
    return invocation;
  }

  CLI::App app("Trains image classifiers on MPI ranks: mpirun -np 4 ./trainer", "trainer");
  app.set_help_flag("-h,--help", "print this and end");
  bool wants_version = false;
  app.add_flag("--version", wants_version, "print the versions of program and libraries and end");
  app.footer(kCommands);
  const auto options = run_options(invocation.run);
  add_options(app, options, invocation);

  try {
    app.parse(argc - words, argv + words);
  } catch (const CLI::CallForHelp&) {
    invocation.command = Command::print_text;
    invocation.text = app.help();
    return invocation;
  } catch (const CLI::ParseError& error) {
    throw Error(ErrorSource::usage, fmt::format("{}; see trainer --help", error.what()));
  }
  if (wants_version) {
    invocation.command = Command::print_text;
    invocation.text = version_text();
    return invocation;
  }
  for (const RunOption& option : options) {
    const CLI::Option* parsed = app.get_option_no_throw("--" + option.name);
    if (parsed != nullptr && parsed->count() > 0) invocation.given.insert(option.name);
  }
  if (!invocation.run.config.empty()) read_config_file(invocation.run.config, invocation.run, invocation.given);
  return invocation;
}

}  // namespace tutti
