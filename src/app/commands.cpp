#include "commands.hpp"

#include <CLI/CLI.hpp>

#include <algorithm>
#include <array>
#include <cstdint>
#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace tutti {
namespace {

// Ranks may stall whatever they do together.
bool is_of_watch(const RunOption& option) { return option.name == "stall-timeout" || option.name == "watch-interface"; }

constexpr const char* kCheckpointHelp =
    "of the trained weights: a file, the run's folder (its newest good one), RUN@best or RUN@STEP";

CLI::Range positive(std::int64_t most = std::int64_t{1} << 30) {
  CLI::Range range(std::int64_t{1}, most);
  range.description("");  // a limit that nobody comes near only lengthens the help
  return range;
}

// Adds options of a command's own to one group of its help.
struct Group {
  CLI::App& app;
  const char* name;

  CLI::Option* text(const char* flag, std::string& value, const char* help) const {
    return app.add_option(flag, value, help)->group(name);
  }
  template <class Number>
  CLI::Option* number(const char* flag, Number& value, const CLI::Range& range, const char* help) const {
    return app.add_option(flag, value, help)->check(range)->capture_default_str()->group(name);
  }
  CLI::Option* count(const char* flag, std::int64_t& value, const char* help) const {
    return number(flag, value, positive(std::int64_t{1} << 40), help);
  }
  // One of the words of an enumeration.
  template <class E, class Value>
  CLI::Option* choice(const char* flag, Value& value, const char* help) const {
    const auto words = words_of(E{});
    return app
        .add_option_function<std::string>(
            flag, [&value](const std::string& word) { value = value_named<E>(word).value(); }, help)
        ->check(CLI::IsMember(std::vector<std::string>(words.begin(), words.end())))
        ->group(name);
  }
  void flag(const char* flag, bool& value, const char* help) const { app.add_flag(flag, value, help)->group(name); }
};

void add_json_option(CLI::App& app, Invocation& invocation) {
  Group{app, "Results"}.text("--json", invocation.json, "write the results to this file, too");
}

void add_ranks_option(const Group& bench, Invocation& invocation) {
  bench.text("--ranks", invocation.ranks, "rank counts to measure, as 1,2,4; none: 1, 2, 4 .. all");
}

bool is_one_of(const RunOption& option, std::initializer_list<std::string_view> names) {
  return std::ranges::find(names, option.name) != names.end();
}

bool takes_all(const RunOption&) { return true; }
bool takes_none(const RunOption&) { return false; }

// All else is the checkpoint's.
bool takes_eval(const RunOption& option) {
  return is_of_watch(option) || option.use == OptionUse::place ||
         is_one_of(option, {"device", "share-device", "comm", "quiet"});
}

bool takes_predict(const RunOption& option) {
  return takes_eval(option) || option.name == "skip-bad-images" || option.name == "exif";
}

// A measurement decides by itself how long it runs and what it keeps.
bool takes_bench_step(const RunOption& option) {
  if (is_one_of(option, {"epochs", "steps", "init-from"})) return false;
  return is_of_watch(option) || option.use == OptionUse::fixed || option.use == OptionUse::place ||
         option.group == "Ranks and devices";
}

// Those of rank counts and of the input also decide on the parts.
bool takes_bench(const RunOption& option) {
  return takes_bench_step(option) && option.name != "parts" && option.name != "part-map";
}

// It neither updates weights nor exchanges gradients.
bool takes_bench_input(const RunOption& option) {
  if (option.group == "Training") return option.name == "batch-size" || option.name == "seed";
  return takes_bench(option) && !is_one_of(option, {"exchange", "shard-optimizer", "bucket-mib"});
}

// It compares the exchanges.
bool takes_bench_exchange(const RunOption& option) {
  return takes_bench(option) && option.name != "exchange" && option.name != "shard-optimizer";
}

// It trains nothing.
bool takes_bench_allreduce(const RunOption& option) {
  return is_of_watch(option) || is_one_of(option, {"device", "share-device", "comm"});
}

// What is looked at, and on what. It shows the exchange by itself.
bool takes_tour(const RunOption& option) {
  return is_of_watch(option) || option.group == "Data" ||
         is_one_of(option, {"model", "init", "epochs", "steps", "batch-size", "lr", "seed", "parts", "comm", "threads",
                            "device", "share-device", "precision", "search-plans", "plan-cache", "tiled-convolutions"});
}

void add_no_options(CLI::App&, Invocation&) {}

void add_eval_options(CLI::App& app, Invocation& invocation) {
  EvalRequest& eval = invocation.eval;
  const Group evaluation{app, "Evaluation"};
  const Group results{app, "Results"};
  evaluation.text("--checkpoint", eval.checkpoint, kCheckpointHelp)->required();
  evaluation.choice<EvalSet>(
      "--on", eval.on,
      "which of the sets: test, train or any (test if there is one); none: test, or all images of other "
      "data without one");
  results.flag("--classes", eval.classes, "class by class, and what is taken for what");
  results.text("--mistakes", eval.mistakes,
               "save the images of the 24 most confident mistakes to this folder; --json lists them");
  add_json_option(app, invocation);
}

void add_predict_options(CLI::App& app, Invocation& invocation) {
  PredictRequest& predict = invocation.predict;
  const Group prediction{app, "Prediction"};
  const Group results{app, "Results"};
  app.add_option("images", predict.images, "JPEG and PNG files, and folders of them; none: the images of --data");
  prediction.text("--checkpoint", predict.checkpoint, kCheckpointHelp)->required();
  prediction.choice<PredictSets>("--on", predict.on,
                                 "which sets of --data: test, train or all; none: test where there is one");
  prediction.number("--top", predict.top, positive(), "number of classes of each image, the most probable first");
  results.flag("--probabilities", predict.probabilities, "those of all classes, into --csv or --json");
  results.text("--csv", predict.csv, "write a line for each image to this file; -: to stdout");
  results.flag("--csv-safe", predict.csv_safe,
               "with --csv: ' before what a spreadsheet takes for a formula, control characters as \\x1b");
  results.text("--json", invocation.json, "write a JSON object for each image, a line each; -: to stdout");
}

void add_allreduce_options(CLI::App& app, Invocation& invocation) {
  const Group bench{app, "Bench"};
  add_ranks_option(bench, invocation);
  bench.count("--min-bytes", invocation.allreduce.min_bytes, "smallest message");
  bench.count("--max-bytes", invocation.allreduce.max_bytes, "largest message");
  bench.count("--repeats", invocation.allreduce.repeats, "timed repetitions of each");
  add_json_option(app, invocation);
}

void add_checkpoint_options(CLI::App& app, Invocation& invocation) {
  const Group bench{app, "Bench"};
  bench.text("--folder", invocation.checkpoint.folder, "on the disk to measure; what is written there goes again")
      ->capture_default_str();
  bench.count("--rounds", invocation.checkpoint.rounds, "of each measurement, in turns");
  add_json_option(app, invocation);
}

void add_input_options(CLI::App& app, Invocation& invocation) {
  Group{app, "Bench"}.number("--seconds", invocation.input.seconds, CLI::Range(0.01, 3600.0), "of each measurement");
  add_json_option(app, invocation);
}

void add_step_options(CLI::App& app, Invocation& invocation) {
  const Group bench{app, "Bench"};
  bench.count("--warmup-steps", invocation.steps.warmup, "steps before the clock runs");
  bench.count("--timed-steps", invocation.steps.timed, "steps measured");
  add_json_option(app, invocation);
}

void add_exchange_options(CLI::App& app, Invocation& invocation) {
  add_ranks_option({app, "Bench"}, invocation);
  add_step_options(app, invocation);
}

void add_scaling_options(CLI::App& app, Invocation& invocation) {
  ScalingBench& scaling = invocation.scaling;
  const Group bench{app, "Bench"};
  bench.choice<ScalingMode>("--mode", scaling.mode, "strong (one batch shared), weak (a batch per rank) or both")
      ->default_str("both");
  bench.text("--nodes", scaling.nodes, "counts of whole nodes to measure, as 1,2,4; none: all that --ranks leaves");
  bench.text("--exchanges", scaling.exchanges, "exchanges to measure, as ring,exact,sharded,central; none: --exchange");
  bench.count("--rounds", scaling.rounds, "of all points, in turns; medians over them are printed");
  bench.flag("--paced", scaling.paced,
             "sleep through the compute as long as one rank's steps take: the exchange alone");
  add_exchange_options(app, invocation);
}

void add_compared_words(CLI::App& app, Invocation& invocation) {
  app.add_option("a", invocation.compared.a,
                 "a run's folder, its metrics.jsonl or a checkpoint (.h5, RUN@best, RUN@STEP)")
      ->required();
  app.add_option("b", invocation.compared.b, "what to compare it with")->required();
}

void add_inspect_options(CLI::App& app, Invocation& invocation) {
  const Group results{app, "Results"};
  app.add_option("checkpoint", invocation.inspect.checkpoint,
                 "a checkpoint (.h5), RUN@best, RUN@STEP, or a run's folder")
      ->required();
  results.text("--tensor", invocation.inspect.tensor, "print its values: parameters/conv1/weight, or conv1/weight");
  results.text("--seal", invocation.inspect.seal,
               "write the checkpoint as one file that needs no manifest, of an unsealed one, too, if you trust it");
  add_json_option(app, invocation);
}

void add_tour_options(CLI::App& app, Invocation& invocation) {
  const Group tour{app, "Tour"};
  tour.text("--to", invocation.tour.to, "number or name of the last station; none: all");
  tour.flag("--stations", invocation.tour.lists, "list the stations and end");
  tour.flag("--pause", invocation.tour.pauses, "ask after each station whether to go on, where keys can be read");
  invocation.run.epochs = 1;
}

bool takes_data(const RunOption& option) {
  return is_one_of(option, {"test-data", "validation-ratio", "skip-bad-images", "exif", "seed", "resident-mib"});
}

bool takes_convert(const RunOption& option) {
  return takes_data(option) || is_one_of(option, {"progress", "quiet", "image-size"});
}

// What decides on the images of a step.
bool takes_show(const RunOption& option) {
  return option.name != "data" && (option.group == "Data" || is_one_of(option, {"batch-size", "parts", "seed"}));
}

void add_source_word(CLI::App& app, Invocation& invocation) {
  app.add_option("source", invocation.run.data, "the data set, as --data of train names it")->required();
}

void add_info_words(CLI::App& app, Invocation& invocation) {
  add_source_word(app, invocation);
  Group{app, "Data"}.flag("--verify", invocation.run.verify_data,
                          "read all image headers and decode a sample of the images; of an HDF5 file, read all");
}

void add_convert_words(CLI::App& app, Invocation& invocation) {
  add_source_word(app, invocation);
  app.add_option("target", invocation.target, "the file to write, DST.h5 (or .hdf5)")->required();
  Group{app, "Data"}.number("--threads", invocation.threads, CLI::Range(0, 4096),
                            "that read and decode; 0: one per core; never changes a byte");
}

void add_show_options(CLI::App& app, Invocation& invocation) {
  ShowRequest& show = invocation.show;
  const Group picture{app, "Picture"};
  add_source_word(app, invocation);
  app.add_option("target", invocation.target, "the picture to write, OUT.png")->required();
  picture.number("--count", show.count, positive(), "images, at most as many as the step has");
  picture.flag("--beside", show.beside, "each image's original to the left of it");
  CLI::Option* const epoch = picture.number("--epoch", show.epoch, positive(), "whose first step is shown");
  app.add_option("--step", show.step, "the step to show, counted over all epochs as in metrics.jsonl")
      ->check(positive())
      ->excludes(epoch)
      ->group("Picture");
}

constexpr std::array kCommands{
    Command{"train", "trains, or resumes a training (when no command is given)", Watched::always, train_command,
            takes_all, add_no_options},
    Command{"check", "refuses a training that cannot go well, and says what to do; trains nothing", Watched::never,
            check_command, takes_all, add_json_option},
    Command{"eval", "accuracy and loss of a checkpoint", Watched::always, eval_command, takes_eval, add_eval_options},
    Command{"predict", "labels images, or a data set's, by a checkpoint", Watched::always, predict_command,
            takes_predict, add_predict_options},
    Command{"diff", "the first step, tensor and element in which two runs differ", Watched::never, diff_command,
            takes_none, add_compared_words},
    Command{"inspect", "what a checkpoint holds, verified", Watched::never, inspect_command, takes_none,
            add_inspect_options},
    Command{"tour", "how ranks train together, station by station, on these ranks", Watched::launched, tour_command,
            takes_tour, add_tour_options},
    Command{"bench allreduce", "sums over the ranks, by message size", Watched::launched, bench_allreduce,
            takes_bench_allreduce, add_allreduce_options},
    Command{"bench checkpoint", "what saving and loading the training state costs", Watched::launched, bench_checkpoint,
            takes_bench_step, add_checkpoint_options},
    Command{"bench exchange", "the exchanges compared, by rank count", Watched::launched, bench_exchange,
            takes_bench_exchange, add_exchange_options},
    Command{"bench input", "preparing batches beside the compute", Watched::launched, bench_input, takes_bench_input,
            add_input_options},
    Command{"bench scaling", "training steps, by rank count", Watched::launched, bench_scaling, takes_bench,
            add_scaling_options},
    Command{"bench step", "training steps, memory and start-up as they are", Watched::launched, bench_step,
            takes_bench_step, add_step_options},
    Command{"data convert", "any data set into one HDF5 file", Watched::never, data_convert, takes_convert,
            add_convert_words},
    Command{"data info", "what a data set holds", Watched::never, data_info, takes_data, add_info_words},
    Command{"data show", "a picture of a step's images as the network gets them", Watched::never, data_show, takes_show,
            add_show_options}};

}  // namespace

std::span<const Command> commands() { return kCommands; }

}  // namespace tutti
