#include "command_line.hpp"

#include "tutti/backend/backend.hpp"
#include "tutti/base/error.hpp"
#include "tutti/base/utf8.hpp"
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

bool concerns_train(const RunOption&) { return true; }
bool concerns_nothing(const RunOption&) { return false; }

// Ranks may stall whatever they do together.
bool concerns_watch(const RunOption& option) {
  return option.name == "stall-timeout" || option.name == "watch-interface";
}

// All else is the checkpoint's.
bool concerns_eval(const RunOption& option) {
  return concerns_watch(option) || option.use == OptionUse::place || option.name == "device" ||
         option.name == "share-device" || option.name == "comm" || option.name == "quiet";
}

bool concerns_predict(const RunOption& option) { return concerns_eval(option) || option.name == "skip-bad-images"; }

// A measurement decides by itself how long it runs and what it keeps.
bool concerns_bench_step(const RunOption& option) {
  if (option.name == "epochs" || option.name == "steps") return false;
  return concerns_watch(option) || option.use == OptionUse::fixed || option.use == OptionUse::place ||
         option.group == "Ranks and devices";
}

bool concerns_data(const RunOption& option) {
  return option.name == "test-data" || option.name == "validation-ratio" || option.name == "skip-bad-images" ||
         option.name == "seed";
}

bool concerns_convert(const RunOption& option) { return concerns_data(option) || option.name == "image-size"; }

// Those of rank counts and of the input also decide on the parts.
bool concerns_bench(const RunOption& option) {
  return concerns_bench_step(option) && option.name != "parts" && option.name != "part-map";
}

// It compares the ways in which gradients meet.
bool concerns_bench_exchange(const RunOption& option) {
  return concerns_bench(option) && option.name != "exchange" && option.name != "shard-optimizer";
}

// It trains nothing.
bool concerns_bench_allreduce(const RunOption& option) {
  return concerns_watch(option) || option.name == "device" || option.name == "share-device" || option.name == "comm";
}

void add_no_options(CLI::App&, Invocation&) {}

void add_json_option(CLI::App& app, Invocation& invocation) {
  app.add_option("--json", invocation.json, "write the results to this file, too")->group("Results");
}

void add_eval_options(CLI::App& app, Invocation& invocation) {
  app.add_option("--checkpoint", invocation.eval.checkpoint, "file of the trained weights, or the run's folder")
      ->required()
      ->group("Evaluation");
  app.add_option("--on", invocation.eval.on, "which of the sets: test or train")
      ->check(CLI::IsMember({"test", "train"}))
      ->capture_default_str()
      ->group("Evaluation");
  app.add_flag("--classes", invocation.eval.classes, "class by class, and what is taken for what")->group("Results");
  add_json_option(app, invocation);
}

void add_predict_options(CLI::App& app, Invocation& invocation) {
  PredictRequest& predict = invocation.predict;
  app.add_option("images", predict.images, "JPEG and PNG files, and folders of them; none: the images of --data");
  app.add_option("--checkpoint", predict.checkpoint, "file of the trained weights, or the run's folder")
      ->required()
      ->group("Prediction");
  app.add_option("--on", predict.on, "which sets of --data: test, train or all; none: test where there is one")
      ->check(CLI::IsMember({"test", "train", "all"}))
      ->group("Prediction");
  app.add_option("--top", predict.top, "so many classes of each image, the most probable first")
      ->check(CLI::PositiveNumber)
      ->capture_default_str()
      ->group("Prediction");
  app.add_flag("--probabilities", predict.probabilities, "those of all classes, into --csv or --json")
      ->group("Results");
  app.add_option("--csv", predict.csv, "write a line for each image to this file; -: to stdout")->group("Results");
  app.add_option("--json", invocation.json, "write a JSON object for each image, a line each; -: to stdout")
      ->group("Results");
}

void add_ranks_option(CLI::App& app, Invocation& invocation) {
  app.add_option("--ranks", invocation.ranks, "rank counts to measure, as 1,2,4; none: 1, 2, 4 .. all")->group("Bench");
}

void add_count(CLI::App& app, const char* flag, std::int64_t& value, const char* help) {
  const CLI::Range positive(std::int64_t{1}, std::int64_t{1} << 40);
  app.add_option(flag, value, help)->check(positive)->capture_default_str()->group("Bench");
}

void add_allreduce_options(CLI::App& app, Invocation& invocation) {
  AllreduceBench& bench = invocation.allreduce;
  add_ranks_option(app, invocation);
  add_count(app, "--min-bytes", bench.min_bytes, "smallest message");
  add_count(app, "--max-bytes", bench.max_bytes, "largest message");
  add_count(app, "--repeats", bench.repeats, "timed repetitions of each");
  add_json_option(app, invocation);
}

void add_checkpoint_options(CLI::App& app, Invocation& invocation) {
  app.add_option("--folder", invocation.checkpoint.folder, "on the disk to measure; what is written there goes again")
      ->capture_default_str()
      ->group("Bench");
  add_count(app, "--rounds", invocation.checkpoint.rounds, "of each measurement, in turns");
  add_json_option(app, invocation);
}

void add_input_options(CLI::App& app, Invocation& invocation) {
  app.add_option("--seconds", invocation.input.seconds, "of each measurement")
      ->check(CLI::Range(0.01, 3600.0))
      ->capture_default_str()
      ->group("Bench");
  add_json_option(app, invocation);
}

void add_step_options(CLI::App& app, Invocation& invocation) {
  add_count(app, "--warmup-steps", invocation.steps.warmup, "steps before the clock runs");
  add_count(app, "--timed-steps", invocation.steps.timed, "steps measured");
  add_json_option(app, invocation);
}

void add_exchange_options(CLI::App& app, Invocation& invocation) {
  add_ranks_option(app, invocation);
  add_step_options(app, invocation);
}

void add_scaling_options(CLI::App& app, Invocation& invocation) {
  ScalingBench& bench = invocation.scaling;
  app.add_option("--mode", bench.mode, "strong (one batch shared), weak (a batch per rank) or both")
      ->check(CLI::IsMember({"strong", "weak", "both"}))
      ->capture_default_str()
      ->group("Bench");
  app.add_option("--nodes", bench.nodes, "counts of whole nodes to measure, as 1,2,4; none: all that --ranks leaves")
      ->group("Bench");
  app.add_option("--exchanges", bench.exchanges, "how gradients meet, as ring,exact,sharded,central; none: --exchange")
      ->group("Bench");
  add_count(app, "--rounds", bench.rounds, "of all points, in turns; medians over them are told");
  app.add_flag("--paced", bench.paced, "sleep through the compute as long as one rank's steps take: the exchange alone")
      ->group("Bench");
  app.add_option("--forecast", bench.forecast, "also forecast so many ranks, as 2..1024 or 3,5,7")->group("Forecast");
  app.add_option("--between", bench.between,
                 "microseconds and GB/s of a link between nodes, as 2,12.5; none: as measured between two of them")
      ->delimiter(',')
      ->expected(2)
      ->check(CLI::PositiveNumber)
      ->group("Forecast");
  app.add_option("--forecast-from", bench.forecast_from,
                 "measure nothing: inputs of the forecast from what --json has kept, or written by hand")
      ->group("Forecast");
  add_exchange_options(app, invocation);
}

void add_source_word(CLI::App& app, Invocation& invocation) {
  app.add_option("source", invocation.run.data, "the data set, as --data of train names it")->required();
}

void add_convert_words(CLI::App& app, Invocation& invocation) {
  add_source_word(app, invocation);
  app.add_option("target", invocation.target, "the file to write, DST.h5")->required();
}

void add_compared_words(CLI::App& app, Invocation& invocation) {
  app.add_option("a", invocation.compared.a, "a run's folder, its metrics.jsonl or a checkpoint (.h5)")->required();
  app.add_option("b", invocation.compared.b, "what to compare it with")->required();
}

void add_inspect_options(CLI::App& app, Invocation& invocation) {
  app.add_option("checkpoint", invocation.inspect.checkpoint, "a checkpoint (.h5), a run's folder or its checkpoints")
      ->required();
  app.add_option("--tensor", invocation.inspect.tensor, "print its values: parameters/conv1/weight, or conv1/weight")
      ->group("Results");
  add_json_option(app, invocation);
}

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
    CommandEntry{"bench allreduce", Command::bench_allreduce, "sums over the ranks, by message size",
                 concerns_bench_allreduce, add_allreduce_options},
    CommandEntry{"bench checkpoint", Command::bench_checkpoint, "what saving and loading the training state costs",
                 concerns_bench_step, add_checkpoint_options},
    CommandEntry{"bench exchange", Command::bench_exchange, "how gradients can meet, by rank count",
                 concerns_bench_exchange, add_exchange_options},
    CommandEntry{"bench input", Command::bench_input, "preparing batches beside the compute", concerns_bench,
                 add_input_options},
    CommandEntry{"bench layers", Command::bench_layers, "one training step layer by layer, against what could be",
                 concerns_bench, add_step_options},
    CommandEntry{"bench scaling", Command::bench_scaling, "training steps, by rank count", concerns_bench,
                 add_scaling_options},
    CommandEntry{"bench step", Command::bench_step, "training steps, memory and start-up as they are",
                 concerns_bench_step, add_step_options},
    CommandEntry{"data convert", Command::data_convert, "any data set into one HDF5 file", concerns_convert,
                 add_convert_words},
    CommandEntry{"data info", Command::data_info, "what a data set holds", concerns_data, add_source_word},
};

std::string list_of_commands() {
  std::string text = "Commands, each with its own --help:\n";
  for (const CommandEntry& entry : kCommands) text += fmt::format("  {:<18}{}\n", entry.words, entry.does);
  return text;
}

constexpr const char* kStatuses =
    "Exit status: 0 done, 1 different or doomed, 64 usage, 65 bad input, 66 no usable checkpoint, 70 internal,\n"
    "73 cannot save, 74 cannot read, 75 stopped on request after a good checkpoint, 86 a rank hangs,\n"
    "87 replicas differ, 88 no longer finite.";

struct NamedCommand {
  const CommandEntry* entry;  // null: the list of commands is asked for
  int words;                  // that the name took
};

NamedCommand command_of(int argc, const char* const* argv) {
  const std::string first = argc > 1 ? argv[1] : "";
  if (first.empty() || first.front() == '-') return {&kCommands.front(), 0};
  const std::string second = argc > 2 ? argv[2] : "";
  bool is_group = false;
  for (const CommandEntry& entry : kCommands) {
    if (first == entry.words) return {&entry, 1};
    if (first + " " + second == entry.words) return {&entry, 2};
    is_group = is_group || std::string_view(entry.words).starts_with(first + " ");
  }
  if (is_group && (second == "--help" || second == "-h")) return {nullptr, 2};
  throw Error(ErrorSource::usage, fmt::format("no command is called '{}'; see trainer --help",
                                              is_group && !second.empty() ? first + " " + second : first));
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

Invocation& print(Invocation& invocation, std::string text) {
  invocation.command = Command::print_text;
  invocation.text = std::move(text);
  return invocation;
}

}  // namespace

Invocation parse_command_line(int argc, const char* const* argv) {
  Invocation invocation;
  invocation.words.assign(argv, argv + argc);
  refuse_other_than_utf8(invocation.words);
  const auto [entry, words] = command_of(argc, argv);
  if (entry == nullptr) return print(invocation, list_of_commands());
  invocation.command = entry->command;

  const bool trains = entry->command == Command::train;
  const std::string name = trains ? "trainer" : fmt::format("trainer {}", entry->words);
  CLI::App app(trains ? "Trains image classifiers on MPI ranks: mpirun -np 4 ./trainer" : entry->does, name);
  app.set_help_flag("-h,--help", "print this and end");
  bool wants_version = false;
  app.add_flag("--version", wants_version, "print the versions of program and libraries and end");
  app.footer(trains ? list_of_commands() + kStatuses : kStatuses);
  const auto options = run_options(invocation.run);
  entry->add_own_options(app, invocation);
  add_run_options(app, options, *entry);
  try {
    app.parse(argc - words, argv + words);
  } catch (const CLI::CallForHelp&) {
    return print(invocation, app.help());
  } catch (const CLI::ParseError& error) {
    throw Error(ErrorSource::usage, fmt::format("{}; see {} --help", error.what(), name));
  }
  if (wants_version) return print(invocation, version_text());
  for (const RunOption& option : options) {
    const CLI::Option* parsed = app.get_option_no_throw("--" + option.name);
    if (parsed != nullptr && parsed->count() > 0) invocation.given.insert(option.name);
  }
  if (!invocation.run.config.empty()) read_config_file(invocation.run.config, invocation.run, invocation.given);
  fit_defaults(invocation.run, invocation.given);
  return invocation;
}

}  // namespace tutti
