#include "command_options.hpp"

#include "option_choices.hpp"

#include <CLI/CLI.hpp>

#include <algorithm>
#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace tutti {
namespace {

// Ranks may stall whatever they do together.
bool concerns_watch(const RunOption& option) {
  return option.name == "stall-timeout" || option.name == "watch-interface";
}

constexpr const char* kCheckpointHelp =
    "of the trained weights: a file, the run's folder (its newest good one), RUN@best or RUN@STEP";

CLI::IsMember is_choice_of(const char* option, const char* command = "") {
  const auto choices = choices_of(option, command);
  return CLI::IsMember(std::vector<std::string>(choices.begin(), choices.end()));
}

void add_ranks_option(CLI::App& app, Invocation& invocation) {
  app.add_option("--ranks", invocation.ranks, "rank counts to measure, as 1,2,4; none: 1, 2, 4 .. all")->group("Bench");
}

void add_count(CLI::App& app, const char* flag, std::int64_t& value, const char* help) {
  CLI::Range positive(std::int64_t{1}, std::int64_t{1} << 40);
  positive.description("");  // a limit that nobody comes near only lengthens the help
  app.add_option(flag, value, help)->check(positive)->capture_default_str()->group("Bench");
}

}  // namespace

bool concerns_train(const RunOption&) { return true; }
bool concerns_nothing(const RunOption&) { return false; }

// All else is the checkpoint's.
bool concerns_eval(const RunOption& option) {
  return concerns_watch(option) || option.use == OptionUse::place || option.name == "device" ||
         option.name == "share-device" || option.name == "comm" || option.name == "quiet";
}

bool concerns_predict(const RunOption& option) {
  return concerns_eval(option) || option.name == "skip-bad-images" || option.name == "exif";
}

// A measurement decides by itself how long it runs and what it keeps.
bool concerns_bench_step(const RunOption& option) {
  if (option.name == "epochs" || option.name == "steps" || option.name == "init-from") return false;
  return concerns_watch(option) || option.use == OptionUse::fixed || option.use == OptionUse::place ||
         option.group == "Ranks and devices";
}

// Those of rank counts and of the input also decide on the parts.
bool concerns_bench(const RunOption& option) {
  return concerns_bench_step(option) && option.name != "parts" && option.name != "part-map";
}

// It neither updates weights nor exchanges gradients.
bool concerns_bench_input(const RunOption& option) {
  constexpr std::array<std::string_view, 3> kOfExchange{"exchange", "shard-optimizer", "bucket-mib"};
  if (option.group == "Training") return option.name == "batch-size" || option.name == "seed";
  return concerns_bench(option) && std::ranges::count(kOfExchange, option.name) == 0;
}

// It compares the ways in which gradients meet.
bool concerns_bench_exchange(const RunOption& option) {
  return concerns_bench(option) && option.name != "exchange" && option.name != "shard-optimizer";
}

// It trains nothing.
bool concerns_bench_allreduce(const RunOption& option) {
  return concerns_watch(option) || option.name == "device" || option.name == "share-device" || option.name == "comm";
}

// What is looked at, and on what. How gradients meet it shows by itself.
bool concerns_tour(const RunOption& option) {
  constexpr std::array<std::string_view, 16> kOthers{
      "model", "init",    "epochs", "steps",        "batch-size", "lr",           "seed",       "parts",
      "comm",  "threads", "device", "share-device", "precision",  "search-plans", "plan-cache", "tiled-convolutions"};
  return concerns_watch(option) || option.group == "Data" || std::ranges::count(kOthers, option.name) > 0;
}

void add_no_options(CLI::App&, Invocation&) {}

void add_json_option(CLI::App& app, Invocation& invocation) {
  app.add_option("--json", invocation.json, "write the results to this file, too")->group("Results");
}

void add_eval_options(CLI::App& app, Invocation& invocation) {
  app.add_option("--checkpoint", invocation.eval.checkpoint, kCheckpointHelp)->required()->group("Evaluation");
  app.add_option("--on", invocation.eval.on,
                 "which of the sets: test, train or any (test if there is one); none: test, or all images of other "
                 "data without one")
      ->check(is_choice_of("on"))
      ->group("Evaluation");
  app.add_flag("--classes", invocation.eval.classes, "class by class, and what is taken for what")->group("Results");
  app.add_option("--mistakes", invocation.eval.mistakes,
                 "save the images of the 24 most confident mistakes to this folder; --json lists them")
      ->group("Results");
  add_json_option(app, invocation);
}

void add_predict_options(CLI::App& app, Invocation& invocation) {
  PredictRequest& predict = invocation.predict;
  CLI::Range at_least_one(std::int64_t{1}, std::int64_t{1} << 30);
  at_least_one.description("");
  app.add_option("images", predict.images, "JPEG and PNG files, and folders of them; none: the images of --data");
  app.add_option("--checkpoint", predict.checkpoint, kCheckpointHelp)->required()->group("Prediction");
  app.add_option("--on", predict.on, "which sets of --data: test, train or all; none: test where there is one")
      ->check(is_choice_of("on", "predict"))
      ->group("Prediction");
  app.add_option("--top", predict.top, "so many classes of each image, the most probable first")
      ->check(at_least_one)
      ->capture_default_str()
      ->group("Prediction");
  app.add_flag("--probabilities", predict.probabilities, "those of all classes, into --csv or --json")
      ->group("Results");
  app.add_option("--csv", predict.csv, "write a line for each image to this file; -: to stdout")->group("Results");
  app.add_flag("--csv-safe", predict.csv_safe,
               "with --csv: ' before what a spreadsheet takes for a formula, control characters as \\x1b")
      ->group("Results");
  app.add_option("--json", invocation.json, "write a JSON object for each image, a line each; -: to stdout")
      ->group("Results");
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
      ->check(is_choice_of("mode"))
      ->capture_default_str()
      ->group("Bench");
  app.add_option("--nodes", bench.nodes, "counts of whole nodes to measure, as 1,2,4; none: all that --ranks leaves")
      ->group("Bench");
  app.add_option("--exchanges", bench.exchanges, "how gradients meet, as ring,exact,sharded,central; none: --exchange")
      ->group("Bench");
  add_count(app, "--rounds", bench.rounds, "of all points, in turns; medians over them are told");
  app.add_flag("--paced", bench.paced, "sleep through the compute as long as one rank's steps take: the exchange alone")
      ->group("Bench");
  for (const auto& [option, target] : {std::pair{"--forecast", &bench.forecast},
                                       {"--between", &bench.between},
                                       {"--forecast-from", &bench.forecast_from}}) {
    app.add_option(option, *target, "see trainer forecast")->group("");  // not in the help
  }
  add_exchange_options(app, invocation);
}

void add_compared_words(CLI::App& app, Invocation& invocation) {
  app.add_option("a", invocation.compared.a,
                 "a run's folder, its metrics.jsonl or a checkpoint (.h5, RUN@best, RUN@STEP)")
      ->required();
  app.add_option("b", invocation.compared.b, "what to compare it with")->required();
}

void add_inspect_options(CLI::App& app, Invocation& invocation) {
  app.add_option("checkpoint", invocation.inspect.checkpoint,
                 "a checkpoint (.h5), RUN@best, RUN@STEP, or a run's folder")
      ->required();
  app.add_option("--tensor", invocation.inspect.tensor, "print its values: parameters/conv1/weight, or conv1/weight")
      ->group("Results");
  app.add_option("--seal", invocation.inspect.seal,
                 "write the checkpoint as one file that needs no manifest, of an unsealed one, too, if you trust it")
      ->group("Results");
  add_json_option(app, invocation);
}

void add_tour_options(CLI::App& app, Invocation& invocation) {
  TourRequest& tour = invocation.tour;
  app.add_option("--to", tour.to, "number or name of the last station; none: all")->group("Tour");
  app.add_flag("--stations", tour.lists, "list the stations and end")->group("Tour");
  app.add_flag("--pause", tour.pauses, "ask after each station whether to go on, where keys can be read")
      ->group("Tour");
  invocation.run.epochs = 1;
}

}  // namespace tutti
