#include "commands.hpp"

#include <CLI/CLI.hpp>

#include <algorithm>
#include <array>
#include <cstdint>
#include <initializer_list>
#include <string>
#include <string_view>
#include <vector>

namespace tutti {
namespace {

// Options of the stall watch, which all commands with collectives have.
bool is_of_watch(const RunOption& option) { return option.name == "stall-timeout" || option.name == "watch-interface"; }

constexpr const char* kCheckpointHelp =
    "checkpoint with the trained weights: a file, a run's folder (its newest good one), RUN@best or RUN@STEP";

CLI::Range positive(std::int64_t max = std::int64_t{1} << 30) {
  CLI::Range range(std::int64_t{1}, max);
  range.description("");  // limits that are never reached would only lengthen the help
  return range;
}

// Adds options that only this command has to a group of its help.
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
  // One of the names of an enumeration.
  template <class E, class Value>
  CLI::Option* choice(const char* flag, Value& value, const char* help) const {
    const auto names = enum_names(E{});
    return app
        .add_option_function<std::string>(
            flag, [&value](const std::string& word) { value = value_named<E>(word).value(); }, help)
        ->check(CLI::IsMember(std::vector<std::string>(names.begin(), names.end())))
        ->group(name);
  }
  void flag(const char* flag, bool& value, const char* help) const { app.add_flag(flag, value, help)->group(name); }
};

void add_json_option(CLI::App& app, Invocation& invocation) {
  Group{app, "Results"}.text("--json", invocation.json, "also write the results to this file");
}

void add_weights_option(const Group& group, Invocation& invocation) {
  group.choice<SavedWeights>("--weights", invocation.weights,
                             "ema (their average) or last; if omitted: ema if the run has --ema");
}

void add_ranks_option(const Group& bench, Invocation& invocation) {
  bench.text("--ranks", invocation.ranks, "rank counts to measure, for example 1,2,4; default: 1, 2, 4 .. all");
}

bool is_one_of(const RunOption& option, std::initializer_list<std::string_view> names) {
  return std::ranges::find(names, option.name) != names.end();
}

bool takes_all(const RunOption&) { return true; }
bool takes_none(const RunOption&) { return false; }

// All other options come from the checkpoint.
bool takes_eval(const RunOption& option) {
  return is_of_watch(option) || option.use == OptionUse::data_source ||
         is_one_of(option, {"device", "share-device", "comm", "quiet", "skip-bad-images", "views"});
}

bool takes_predict(const RunOption& option) { return takes_eval(option) || option.name == "exif"; }

// A measurement has its own length and saves nothing.
bool takes_bench_step(const RunOption& option) {
  if (is_one_of(option, {"epochs", "steps", "init-from", "new-head"})) return false;
  return is_of_watch(option) || option.use == OptionUse::fixed || option.use == OptionUse::data_source ||
         option.group == "Ranks and devices";
}

// Measurements by rank count and of the input also choose the parts.
bool takes_bench(const RunOption& option) {
  return takes_bench_step(option) && option.name != "parts" && option.name != "part-map";
}

// It neither updates weights nor exchanges gradients.
bool takes_bench_input(const RunOption& option) {
  if (option.group == "Training") return option.name == "batch-size" || option.name == "seed";
  return takes_bench(option) && !is_one_of(option, {"exchange", "shard-optimizer", "wire", "bucket-mib"});
}

// It compares the exchanges.
bool takes_bench_exchange(const RunOption& option) {
  return takes_bench(option) && !is_one_of(option, {"exchange", "shard-optimizer", "wire"});
}

// It trains nothing.
bool takes_bench_allreduce(const RunOption& option) {
  return is_of_watch(option) || is_one_of(option, {"device", "share-device", "comm"});
}

// The exchange is part of the tour.
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
  add_weights_option(evaluation, invocation);
  evaluation.choice<EvalSet>(
      "--on", eval.on,
      "data set to evaluate: test, train or any (test if there is one); if omitted: test, or all images of "
      "other data without one");
  results.flag("--classes", eval.classes, "per-class accuracy and confusion matrix");
  results.text("--mistakes", eval.mistakes,
               "save the images of the 24 most confident mistakes to this folder; --json lists them");
  add_json_option(app, invocation);
}

void add_predict_options(CLI::App& app, Invocation& invocation) {
  PredictRequest& predict = invocation.predict;
  const Group prediction{app, "Prediction"};
  const Group results{app, "Results"};
  app.add_option("images", predict.images, "JPEG and PNG files, and folders of them; if omitted: the images of --data");
  prediction.text("--checkpoint", predict.checkpoint, kCheckpointHelp)->required();
  add_weights_option(prediction, invocation);
  prediction.choice<PredictSets>("--on", predict.on,
                                 "data sets to classify: test, train or all; if omitted: test if there is one");
  prediction.number("--top", predict.top, positive(), "number of classes per image, the most probable first");
  results.flag("--probabilities", predict.probabilities,
               "also write the probabilities of all classes to --csv or --json");
  results.text("--csv", predict.csv, "write one line per image to this file; -: to stdout");
  results.flag("--csv-safe", predict.csv_safe,
               "with --csv: put ' before formulas, and write control characters as \\x1b");
  results.text("--json", invocation.json, "write a JSON object for each image, one per line; -: to stdout");
}

void add_allreduce_options(CLI::App& app, Invocation& invocation) {
  const Group bench{app, "Bench"};
  add_ranks_option(bench, invocation);
  bench.count("--min-bytes", invocation.allreduce.min_bytes, "smallest message");
  bench.count("--max-bytes", invocation.allreduce.max_bytes, "largest message");
  bench.count("--repeats", invocation.allreduce.repeats, "timed loops of each, of about 2 ms or one call");
  bench.number("--max-seconds", invocation.allreduce.max_seconds, CLI::Range(0.0, 1e6),
               "after this time the next size follows, with fewer loops");
  add_json_option(app, invocation);
}

void add_checkpoint_options(CLI::App& app, Invocation& invocation) {
  const Group bench{app, "Bench"};
  bench.text("--folder", invocation.checkpoint.folder, "folder on the disk to measure; files are removed at the end")
      ->capture_default_str();
  bench.count("--rounds", invocation.checkpoint.rounds, "rounds of all measurements");
  add_json_option(app, invocation);
}

void add_input_options(CLI::App& app, Invocation& invocation) {
  Group{app, "Bench"}.number("--seconds", invocation.input.seconds, CLI::Range(0.01, 3600.0),
                             "seconds per measurement");
  add_json_option(app, invocation);
}

void add_step_options(CLI::App& app, Invocation& invocation) {
  const Group bench{app, "Bench"};
  bench.count("--warmup-steps", invocation.steps.warmup, "steps before the measurement");
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
  bench.text("--nodes", scaling.nodes,
             "counts of whole nodes to measure, for example 1,2,4; default: all that --ranks allows");
  bench.text("--exchanges", scaling.exchanges,
             "exchanges to measure, for example ring,exact,sharded,central; default: --exchange");
  bench.count("--rounds", scaling.rounds, "rounds of all measurements, of which the medians are printed");
  bench.flag("--paced", scaling.paced,
             "sleep for the compute time of one rank instead of computing: measures the exchange alone");
  add_exchange_options(app, invocation);
}

void add_compared_words(CLI::App& app, Invocation& invocation) {
  app.add_option("a", invocation.compared.a,
                 "a run's folder, its metrics.jsonl or a checkpoint (.h5, RUN@best, RUN@STEP)")
      ->required();
  app.add_option("b", invocation.compared.b, "the other run or checkpoint")->required();
}

void add_inspect_options(CLI::App& app, Invocation& invocation) {
  const Group results{app, "Results"};
  app.add_option("checkpoint", invocation.inspect.checkpoint,
                 "a checkpoint (.h5), RUN@best, RUN@STEP, or a run's folder")
      ->required();
  results.text("--tensor", invocation.inspect.tensor, "print its values: parameters/conv1/weight, or conv1/weight");
  results.text("--seal", invocation.inspect.seal,
               "write the checkpoint as one file without a manifest; an unsealed checkpoint is trusted");
  add_json_option(app, invocation);
}

void add_tour_options(CLI::App& app, Invocation& invocation) {
  const Group tour{app, "Tour"};
  tour.text("--to", invocation.tour.to, "number or name of the last station; default: all");
  tour.flag("--stations", invocation.tour.list_only, "list the stations and exit");
  tour.flag("--pause", invocation.tour.pause, "wait for a key after each station, on a terminal");
  invocation.run.epochs = 1;
}

bool takes_data(const RunOption& option) {
  return is_one_of(
      option, {"test-data", "validation-ratio", "validation-split", "skip-bad-images", "exif", "seed", "resident-mib"});
}

bool takes_convert(const RunOption& option) {
  return takes_data(option) || is_one_of(option, {"progress", "quiet", "image-size"});
}

// The options that affect the images of a step.
bool takes_show(const RunOption& option) {
  return option.name != "data" && (option.group == "Data" || is_one_of(option, {"batch-size", "parts", "seed"}));
}

void add_source_word(CLI::App& app, Invocation& invocation) {
  app.add_option("source", invocation.run.data, "the data set, as for --data of train")->required();
}

void add_info_words(CLI::App& app, Invocation& invocation) {
  add_source_word(app, invocation);
  Group{app, "Data"}.flag(
      "--verify", invocation.run.verify_data,
      "read all image headers, decode a sample of the images, and list all problems; of an HDF5 file, "
      "read all");
}

void add_convert_words(CLI::App& app, Invocation& invocation) {
  add_source_word(app, invocation);
  app.add_option("target", invocation.target, "the file to write, DST.h5 (or .hdf5)")->required();
  Group{app, "Data"}.number("--threads", invocation.threads, CLI::Range(0, 4096),
                            "threads that read and decode; 0: one per core; the result does not depend on it");
}

void add_show_options(CLI::App& app, Invocation& invocation) {
  ShowRequest& show = invocation.show;
  const Group picture{app, "Picture"};
  add_source_word(app, invocation);
  app.add_option("target", invocation.target, "the picture to write, OUT.png")->required();
  picture.number("--count", show.count, positive(), "number of images, at most those of the step");
  picture.flag("--beside", show.beside, "show each original to the left of its image");
  CLI::Option* const epoch = picture.number("--epoch", show.epoch, positive(), "epoch of which to show the first step");
  app.add_option("--step", show.step, "the step to show, counted over all epochs as in metrics.jsonl")
      ->check(positive())
      ->excludes(epoch)
      ->group("Picture");
}

constexpr std::array kCommands{
    Command{"train", "train, or resume a training (the default command)", StallWatchUse::always, train_command,
            takes_all, add_no_options},
    Command{"check", "pre-flight check: find problems before the run starts (no training)", StallWatchUse::never,
            check_command, takes_all, add_json_option},
    Command{"eval", "evaluate a checkpoint on a data set", StallWatchUse::always, eval_command, takes_eval,
            add_eval_options},
    Command{"predict", "classify images with a trained checkpoint", StallWatchUse::always, predict_command,
            takes_predict, add_predict_options},
    Command{"diff", "find the first step, tensor and element in which two runs differ", StallWatchUse::never,
            diff_command, takes_none, add_compared_words},
    Command{"inspect", "verify a checkpoint and print its contents", StallWatchUse::never, inspect_command, takes_none,
            add_inspect_options},
    Command{"tour", "an interactive walk-through of data-parallel training on these ranks", StallWatchUse::launched,
            tour_command, takes_tour, add_tour_options},
    Command{"bench allreduce", "measure all-reduces by message size", StallWatchUse::launched, bench_allreduce,
            takes_bench_allreduce, add_allreduce_options},
    Command{"bench checkpoint", "measure saving and loading of checkpoints", StallWatchUse::launched, bench_checkpoint,
            takes_bench_step, add_checkpoint_options},
    Command{"bench exchange", "compare the gradient exchanges by rank count", StallWatchUse::launched, bench_exchange,
            takes_bench_exchange, add_exchange_options},
    Command{"bench input", "measure the input pipeline", StallWatchUse::launched, bench_input, takes_bench_input,
            add_input_options},
    Command{"bench scaling", "measure strong and weak scaling by rank count", StallWatchUse::launched, bench_scaling,
            takes_bench, add_scaling_options},
    Command{"bench step", "measure training steps, memory and start-up time", StallWatchUse::launched, bench_step,
            takes_bench_step, add_step_options},
    Command{"data convert", "write a data set as one HDF5 file", StallWatchUse::never, data_convert, takes_convert,
            add_convert_words},
    Command{"data info", "describe a data set", StallWatchUse::never, data_info, takes_data, add_info_words},
    Command{"data show", "draw the images of a step as the network gets them", StallWatchUse::never, data_show,
            takes_show, add_show_options}};

}  // namespace

std::span<const Command> commands() { return kCommands; }

}  // namespace tutti
