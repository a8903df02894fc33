#include "commands.hpp"

#include <algorithm>
#include <array>
#include <cstdint>
#include <iterator>
#include <string>
#include <vector>

namespace tutti {
namespace {

constexpr std::int64_t kMany = std::int64_t{1} << 40;
constexpr const char* kResults = "Results";
constexpr const char* kBench = "Bench";

using Options = std::vector<Option>;

Option json_option(Invocation& invocation) {
  return own_option("json", kResults, "also write the results to this file", text(invocation.json));
}

Option checkpoint_option(const char* group, Invocation& invocation) {
  Option option = own_option(
      "checkpoint", group,
      "checkpoint with the trained weights: a file, a run's folder (its newest good one), RUN@best or RUN@STEP",
      text(invocation.checkpoint));
  option.is_required = true;
  return option;
}

Option weights_option(const char* group, Invocation& invocation) {
  return own_option("weights", group, "ema (their average) or last; if omitted: ema if the run has --ema",
                    one_of("", invocation.weights));
}

Option ranks_option(Invocation& invocation) {
  return own_option("ranks", kBench, "rank counts to measure, for example 1,2,4; default: 1, 2, 4 .. all",
                    text(invocation.ranks));
}

Option source_operand(Invocation& invocation) {
  return operand("source", "the data set, as for --data of train", text(invocation.run.data.train));
}

Option images_operand(std::vector<std::string>& images) {
  Option option = operand(
      "images", "JPEG, PNG and TIFF files, and folders of them; if omitted: the images of --data",
      {.read = [] { return std::string(); }, .write = [&images](const std::string& path) { images.push_back(path); }});
  option.is_required = false;
  option.is_list = true;
  return option;
}

Options with(Options options, Options more) {
  std::ranges::move(more, std::back_inserter(options));
  return options;
}

Options no_options(Invocation&) { return {}; }

Options check_options(Invocation& invocation) { return {json_option(invocation)}; }

Options eval_options(Invocation& invocation) {
  EvalRequest& eval = invocation.eval;
  const char* const evaluation = "Evaluation";
  return {
      checkpoint_option(evaluation, invocation),
      weights_option(evaluation, invocation),
      own_option(
          "on", evaluation,
          "data set to evaluate: test, train or any (test if there is one); if omitted: test, or all images of other "
          "data without one",
          one_of("", eval.on)),
      own_option("classes", kResults, "per-class accuracy and confusion matrix", flag(eval.classes)),
      own_option("mistakes", kResults,
                 "save the images of the 24 most confident mistakes to this folder; --json lists them",
                 text(eval.mistakes)),
      json_option(invocation)};
}

Options predict_options(Invocation& invocation) {
  PredictRequest& predict = invocation.predict;
  const char* const prediction = "Prediction";
  return {images_operand(predict.images),
          checkpoint_option(prediction, invocation),
          weights_option(prediction, invocation),
          own_option("on", prediction, "data sets to classify: test, train or all; if omitted: test if there is one",
                     one_of("", predict.on)),
          own_option("top", prediction, "number of classes per image, the most probable first",
                     whole(predict.top, 1, kMany)),
          own_option("probabilities", kResults, "also write the probabilities of all classes to --csv or --json",
                     flag(predict.probabilities)),
          own_option("csv", kResults, "write one line per image to this file; -: to stdout", text(predict.csv)),
          own_option("csv-safe", kResults, "with --csv: put ' before formulas, and write control characters as \\x1b",
                     flag(predict.csv_safe)),
          own_option("json", kResults, "write a JSON object for each image, one per line; -: to stdout",
                     text(invocation.json))};
}

Options allreduce_options(Invocation& invocation) {
  AllreduceBench& bench = invocation.allreduce;
  return {
      ranks_option(invocation),
      own_option("min-bytes", kBench, "smallest message", whole(bench.min_bytes, 1, kMany)),
      own_option("max-bytes", kBench, "largest message", whole(bench.max_bytes, 1, kMany)),
      own_option("repeats", kBench, "timed loops of each, of about 2 ms or one call", whole(bench.repeats, 1, kMany)),
      own_option("max-seconds", kBench, "after this time the next size follows, with fewer loops",
                 real(bench.max_seconds, 0, 1e6)),
      json_option(invocation)};
}

Options checkpoint_options(Invocation& invocation) {
  CheckpointBench& bench = invocation.checkpoint_bench;
  return {
      own_option("folder", kBench, "folder on the disk to measure; files are removed at the end", text(bench.folder)),
      own_option("rounds", kBench, "rounds of all measurements", whole(bench.rounds, 1, kMany)),
      json_option(invocation)};
}

Options input_options(Invocation& invocation) {
  return {own_option("seconds", kBench, "seconds per measurement", real(invocation.input_seconds, 0.01, 3600)),
          json_option(invocation)};
}

Options step_options(Invocation& invocation) {
  return {own_option("warmup-steps", kBench, "steps before the measurement", whole(invocation.steps.warmup, 1, kMany)),
          own_option("timed-steps", kBench, "steps measured", whole(invocation.steps.timed, 1, kMany)),
          json_option(invocation)};
}

Options exchange_options(Invocation& invocation) { return with({ranks_option(invocation)}, step_options(invocation)); }

Options scaling_options(Invocation& invocation) {
  ScalingBench& scaling = invocation.scaling;
  return with(
      {own_option("mode", kBench, "strong (one batch shared), weak (a batch per rank) or both", one_of(scaling.mode)),
       own_option("nodes", kBench,
                  "counts of whole nodes to measure, for example 1,2,4; default: all that --ranks allows",
                  text(scaling.nodes)),
       own_option("exchanges", kBench,
                  "exchanges to measure, for example ring,exact,sharded,central; default: --exchange",
                  text(scaling.exchanges)),
       own_option("rounds", kBench, "rounds of all measurements, of which the medians are printed",
                  whole(scaling.rounds, 1, kMany)),
       own_option("paced", kBench,
                  "sleep for the compute time of one rank instead of computing: measures the exchange alone",
                  flag(scaling.paced))},
      exchange_options(invocation));
}

Options diff_options(Invocation& invocation) {
  return {operand("a", "a run's folder, its metrics.jsonl or a checkpoint (.h5, RUN@best, RUN@STEP)",
                  text(invocation.compared.a)),
          operand("b", "the other run or checkpoint", text(invocation.compared.b))};
}

Options inspect_options(Invocation& invocation) {
  InspectRequest& inspect = invocation.inspect;
  return {
      operand("checkpoint", "a checkpoint (.h5), RUN@best, RUN@STEP, or a run's folder", text(invocation.checkpoint)),
      own_option("tensor", kResults, "print its values: parameters/conv1/weight, or conv1/weight",
                 text(inspect.tensor)),
      own_option("seal", kResults,
                 "write the checkpoint as one file without a manifest; an unsealed checkpoint is trusted",
                 text(inspect.seal)),
      json_option(invocation)};
}

Options tour_options(Invocation& invocation) {
  TourRequest& tour = invocation.tour;
  const char* const group = "Tour";
  invocation.run.trainer.epochs = 1;
  return {own_option("to", group, "number or name of the last station; default: all", text(tour.to)),
          own_option("stations", group, "list the stations and exit", flag(tour.list_only)),
          own_option("pause", group, "wait for a key after each station, on a terminal", flag(tour.pause))};
}

Options screen_options(Invocation& invocation) {
  ScreenRequest& screen = invocation.screen;
  return {
      own_option("seconds", "Screening", "how long to compute; at least two rounds are", real(screen.seconds, 0, 1e6)),
      own_option("drain", kResults,
                 "if results are wrong: print the scontrol command that drains the host, or print and run it",
                 one_of("", screen.drain)),
      json_option(invocation)};
}

Options info_options(Invocation& invocation) {
  return {source_operand(invocation),
          own_option(
              "verify", "Data",
              "read all image headers, decode a sample of the images, and list all problems; of an HDF5 file, read all",
              flag(invocation.run.data.lists_problems))};
}

Options convert_options(Invocation& invocation) {
  EncodeRequest& encode = invocation.encode;
  const char* const encoded = "Encoded images";
  constexpr std::int64_t kMaxSide = 65536;
  return {
      source_operand(invocation),
      operand("target", "the file to write, DST.h5 (or .hdf5)", text(invocation.target)),
      own_option("threads", "Data", "threads that read and decode; 0: one per core; the result does not depend on it",
                 whole(invocation.threads, 0, 4096)),
      own_option("encoded", encoded,
                 "keep image files as they are; the source may also be tar archives (train-{000..146}.tar)",
                 flag(encode.encoded)),
      own_option("short-side", encoded, "resize larger images to this short side; 0: do not",
                 whole(encode.options.short_side, 0, kMaxSide)),
      own_option("long-side", encoded, "resize larger images to this long side; 0: do not",
                 whole(encode.options.long_side, 0, kMaxSide)),
      own_option("quality", encoded, "of JPEG images that are resized", whole(encode.options.quality, 1, 100)),
      own_option("shard-size", encoded, "begin another HDF5 file before one has more than this, such as 4GiB",
                 parsed(encode.shard_size, encode.options.shard_bytes, parse_shard_size))};
}

Options show_options(Invocation& invocation) {
  ShowRequest& show = invocation.show;
  const char* const picture = "Picture";
  return {source_operand(invocation),
          operand("target", "the picture to write, OUT.png", text(invocation.target)),
          own_option("count", picture, "number of images, at most those of the step", whole(show.count, 1, kMany)),
          own_option("beside", picture, "show each original to the left of its image", flag(show.beside)),
          own_option("epoch", picture, "epoch of which to show the first step", whole(show.epoch, 1, kMany)),
          own_option("step", picture,
                     "the step to show, counted over all epochs as in metrics.jsonl; 0: the first of --epoch",
                     whole(show.step, 0, kMany))};
}

constexpr std::array kCommands{
    Command{"train", "train, or resume a training (the default command)", StallWatchUse::always, train_command,
            kTraining, no_options},
    Command{"check", "pre-flight check: find problems before the run starts (no training)", StallWatchUse::never,
            check_command, kTraining, check_options},
    Command{"eval", "evaluate a checkpoint on a data set", StallWatchUse::always, eval_command, kEval, eval_options},
    Command{"predict", "classify images with a trained checkpoint", StallWatchUse::always, predict_command, kPredict,
            predict_options},
    Command{"diff", "find the first step, tensor and element in which two runs differ", StallWatchUse::never,
            diff_command, kNoCommand, diff_options},
    Command{"inspect", "verify a checkpoint and print its contents", StallWatchUse::never, inspect_command, kNoCommand,
            inspect_options},
    Command{"tour", "an interactive walk-through of data-parallel training on these ranks", StallWatchUse::launched,
            tour_command, kTour, tour_options},
    Command{"screen", "find cores and GPUs that compute wrong results", StallWatchUse::never, screen_command, kScreen,
            screen_options},
    Command{"bench allreduce", "measure all-reduces by message size", StallWatchUse::launched, bench_allreduce,
            kBenchAllreduce, allreduce_options},
    Command{"bench checkpoint", "measure saving and loading of checkpoints", StallWatchUse::launched, bench_checkpoint,
            kBenchStep, checkpoint_options},
    Command{"bench exchange", "compare the gradient exchanges by rank count", StallWatchUse::launched, bench_exchange,
            kBenchExchange, exchange_options},
    Command{"bench input", "measure the input pipeline", StallWatchUse::launched, bench_input, kBenchInput,
            input_options},
    Command{"bench scaling", "measure strong and weak scaling by rank count", StallWatchUse::launched, bench_scaling,
            kBenchScaling, scaling_options},
    Command{"bench step", "measure training steps, memory and start-up time", StallWatchUse::launched, bench_step,
            kBenchStep, step_options},
    Command{"data convert", "write a data set as one HDF5 file", StallWatchUse::never, data_convert, kDataConvert,
            convert_options},
    Command{"data info", "describe a data set", StallWatchUse::never, data_info, kDataInfo, info_options},
    Command{"data show", "draw the images of a step as the network gets them", StallWatchUse::never, data_show,
            kDataShow, show_options}};

}  // namespace

std::span<const Command> commands() { return kCommands; }

}  // namespace tutti
