#include "command_table.hpp"

#include "bench/bench.hpp"
#include "check_command.hpp"
#include "commands.hpp"
#include "train_command.hpp"

#include <CLI/CLI.hpp>

#include <algorithm>
#include <array>
#include <cstdint>
#include <initializer_list>
#include <string>
#include <string_view>
#include <type_traits>

namespace tutti {
namespace {

// Ranks may stall whatever they do together.
bool is_of_watch(const RunOption& option) { return option.name == "stall-timeout" || option.name == "watch-interface"; }

constexpr const char* kCheckpointHelp =
    "of the trained weights: a file, the run's folder (its newest good one), RUN@best or RUN@STEP";

void add_ranks_option(CLI::App& app, Invocation& invocation) {
  app.add_option("--ranks", invocation.ranks, "rank counts to measure, as 1,2,4; none: 1, 2, 4 .. all")->group("Bench");
}

CLI::Range positive(std::int64_t most = std::int64_t{1} << 30) {
  CLI::Range range(std::int64_t{1}, most);
  range.description("");  // a limit that nobody comes near only lengthens the help
  return range;
}

void add_count(CLI::App& app, const char* flag, std::int64_t& value, const char* help) {
  app.add_option(flag, value, help)->check(positive(std::int64_t{1} << 40))->capture_default_str()->group("Bench");
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

// It compares the ways in which gradients meet.
bool takes_bench_exchange(const RunOption& option) {
  return takes_bench(option) && option.name != "exchange" && option.name != "shard-optimizer";
}

// It trains nothing.
bool takes_bench_allreduce(const RunOption& option) {
  return is_of_watch(option) || is_one_of(option, {"device", "share-device", "comm"});
}

// What is looked at, and on what. How gradients meet it shows by itself.
bool takes_tour(const RunOption& option) {
  return is_of_watch(option) || option.group == "Data" ||
         is_one_of(option, {"model", "init", "epochs", "steps", "batch-size", "lr", "seed", "parts", "comm", "threads",
                            "device", "share-device", "precision", "search-plans", "plan-cache", "tiled-convolutions"});
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
      ->check(CLI::IsMember({"test", "train", "any"}))
      ->group("Evaluation");
  app.add_flag("--classes", invocation.eval.classes, "class by class, and what is taken for what")->group("Results");
  app.add_option("--mistakes", invocation.eval.mistakes,
                 "save the images of the 24 most confident mistakes to this folder; --json lists them")
      ->group("Results");
  add_json_option(app, invocation);
}

void add_predict_options(CLI::App& app, Invocation& invocation) {
  PredictRequest& predict = invocation.predict;
  app.add_option("images", predict.images, "JPEG and PNG files, and folders of them; none: the images of --data");
  app.add_option("--checkpoint", predict.checkpoint, kCheckpointHelp)->required()->group("Prediction");
  app.add_option("--on", predict.on, "which sets of --data: test, train or all; none: test where there is one")
      ->check(CLI::IsMember({"test", "train", "all"}))
      ->group("Prediction");
  app.add_option("--top", predict.top, "so many classes of each image, the most probable first")
      ->check(positive())
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
  app.add_flag("--verify", invocation.run.verify_data,
               "read all image headers and decode a sample of the images; of an HDF5 file, read all")
      ->group("Data");
}

void add_convert_words(CLI::App& app, Invocation& invocation) {
  add_source_word(app, invocation);
  app.add_option("target", invocation.target, "the file to write, DST.h5 (or .hdf5)")->required();
  app.add_option("--threads", invocation.threads, "that read and decode; 0: one per core; never changes a byte")
      ->check(CLI::Range(0, 4096))
      ->capture_default_str()
      ->group("Data");
}

void add_show_options(CLI::App& app, Invocation& invocation) {
  ShowRequest& show = invocation.show;
  add_source_word(app, invocation);
  app.add_option("target", invocation.target, "the picture to write, OUT.png")->required();
  app.add_option("--count", show.count, "images, at most as many as the step has")
      ->check(positive())
      ->capture_default_str()
      ->group("Picture");
  app.add_flag("--beside", show.beside, "each image's original to the left of it")->group("Picture");
  auto* epoch = app.add_option("--epoch", show.epoch, "whose first step is shown")
                    ->check(positive())
                    ->capture_default_str()
                    ->group("Picture");
  app.add_option("--step", show.step, "the step to show, counted over all epochs as in metrics.jsonl")
      ->check(positive())
      ->excludes(epoch)
      ->group("Picture");
}

template <auto command>
ExitStatus run(World& world, const Invocation& invocation, EndRecord& record) {
  if constexpr (std::is_invocable_v<decltype(command), World&, const Invocation&, EndRecord&>) {
    return command(world, invocation, record);
  } else {
    return command(world, invocation);
  }
}

constexpr std::array kCommands{
    Command{"train", "trains, or goes on from a checkpoint (when no command is given)", Watched::always,
            run<train_command>, takes_all, add_no_options},
    Command{"check", "refuses a training that cannot go well, and says what to do; trains nothing", Watched::never,
            run<check_command>, takes_all, add_json_option},
    Command{"eval", "accuracy and loss of a checkpoint", Watched::always, run<eval_command>, takes_eval,
            add_eval_options},
    Command{"predict", "labels images, or a data set's, by a checkpoint", Watched::always, run<predict_command>,
            takes_predict, add_predict_options},
    Command{"diff", "the first step, tensor and element in which two runs differ", Watched::never, run<diff_command>,
            takes_none, add_compared_words},
    Command{"inspect", "what a checkpoint holds, verified", Watched::never, run<inspect_command>, takes_none,
            add_inspect_options},
    Command{"tour", "how ranks train together, station by station, on these ranks", Watched::launched,
            run<tour_command>, takes_tour, add_tour_options},
    Command{"bench allreduce", "sums over the ranks, by message size", Watched::launched, run<bench_allreduce>,
            takes_bench_allreduce, add_allreduce_options},
    Command{"bench checkpoint", "what saving and loading the training state costs", Watched::launched,
            run<bench_checkpoint>, takes_bench_step, add_checkpoint_options},
    Command{"bench exchange", "how gradients can meet, by rank count", Watched::launched, run<bench_exchange>,
            takes_bench_exchange, add_exchange_options},
    Command{"bench input", "preparing batches beside the compute", Watched::launched, run<bench_input>,
            takes_bench_input, add_input_options},
    Command{"bench scaling", "training steps, by rank count", Watched::launched, run<bench_scaling>, takes_bench,
            add_scaling_options},
    Command{"bench step", "training steps, memory and start-up as they are", Watched::launched, run<bench_step>,
            takes_bench_step, add_step_options},
    Command{"data convert", "any data set into one HDF5 file", Watched::never, run<data_convert>, takes_convert,
            add_convert_words},
    Command{"data info", "what a data set holds", Watched::never, run<data_info>, takes_data, add_info_words},
    Command{"data show", "a picture of a step's images as the network gets them", Watched::never, run<data_show>,
            takes_show, add_show_options}};

}  // namespace

std::span<const Command> commands() { return kCommands; }

}  // namespace tutti
