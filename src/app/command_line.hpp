#pragma once
// Parses the command line into an invocation. Nothing is opened, started or printed here.

#include "tutti/data/data_file.hpp"

#include "run_config.hpp"

#include <array>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace tutti {

struct Command;

enum class EvalSet { test, train, any };
constexpr std::array<std::string_view, 3> enum_names(EvalSet) { return {"test", "train", "any"}; }

struct EvalRequest {
  std::optional<EvalSet> on;  // empty: test, or all images if other data have no test set
  bool classes = false;       // also by class
  std::string mistakes;       // folder for the pictures of the most confident mistakes; empty: none
};

// The weights of the last step, or their average over time.
enum class SavedWeights { ema, last };
constexpr std::array<std::string_view, 2> enum_names(SavedWeights) { return {"ema", "last"}; }

enum class PredictSets { test, train, all };
constexpr std::array<std::string_view, 3> enum_names(PredictSets) { return {"test", "train", "all"}; }

struct PredictRequest {
  std::vector<std::string> images;  // files, and folders of files; empty: the images of a data set
  std::optional<PredictSets> on;    // empty: test if there is one, else train
  std::int64_t top = 1;             // number of classes to print for each image
  bool probabilities = false;       // of all classes
  std::string csv;                  // file for the results as CSV; "-": stdout
  bool csv_safe = false;            // without formulas and control characters
};

struct InspectRequest {
  std::string tensor;  // print its values; empty: print everything but values
  std::string seal;    // write this sealed copy first
};

// Run folders, metrics.jsonl files or checkpoints.
struct Compared {
  std::string a;
  std::string b;
};

struct AllreduceBench {
  std::int64_t min_bytes = 4;
  std::int64_t max_bytes = std::int64_t{64} << 20;
  std::int64_t repeats = 20;
  double max_seconds = 10;  // of a message size
};

struct CheckpointBench {
  std::string folder = ".";  // on the disk to be measured
  std::int64_t rounds = 7;
};

// Options of the bench commands that train.
struct TimedSteps {
  std::int64_t warmup = 5;
  std::int64_t timed = 20;
  std::int64_t at_once = 1;  // steps between two readings of the clock
};

enum class ScalingMode { strong, weak, both };
constexpr std::array<std::string_view, 3> enum_names(ScalingMode) { return {"strong", "weak", "both"}; }

struct ScalingBench {
  ScalingMode mode = ScalingMode::both;
  std::string nodes;        // counts of whole nodes to measure, comma separated; empty: up to all
  std::string exchanges;    // to measure, comma separated; empty: the exchange of the run
  std::int64_t rounds = 1;  // each measures all points
  bool paced = false;       // sleeps instead of computing, for the time that the steps of one rank took
};

struct TourRequest {
  std::string to;  // number or name of the last station; empty: all
  bool list_only = false;
  bool pause = false;  // for a key after each station
};

// The scontrol command that drains a host with wrong results.
enum class Drain { print, run };
constexpr std::array<std::string_view, 2> enum_names(Drain) { return {"print", "run"}; }

struct ScreenRequest {
  double seconds = 60;
  std::optional<Drain> drain;  // empty: neither
};

struct EncodeRequest {
  bool encoded = false;  // keep image files as they are
  EncodedOptions options{};
  std::string shard_size;  // as given; empty: one file
};
// Parses --shard-size, such as 4GiB. Throws a usage error.
std::int64_t parse_shard_size(const std::string& text);

struct ShowRequest {
  std::int64_t count = 32;
  std::int64_t epoch = 1;
  std::int64_t step = 0;  // of the run, counted from 1; 0: the first of the epoch
  bool beside = false;
};

struct Invocation {
  const Command* command = nullptr;    // null: print `text`, or execute the companion
  std::string command_name;            // as users write it
  std::string text;                    // help, version or another listing
  std::filesystem::path companion;     // the program to execute
  std::vector<std::string> arguments;  // argv, for the run record; for a companion, those after its name
  RunConfig run;
  std::vector<std::string> problems;  // invalid values; check reports all, other commands throw the first
  std::string ranks;   // bench allreduce, exchange, scaling: rank counts, comma separated; empty: doubling up to all
  std::string json;    // bench, check, eval, inspect, predict, screen: file for the results as JSON
  std::string target;  // data convert, data show: the file to write
  std::int64_t threads = 0;  // data convert: decoding threads; 0: one per core of this process
  EncodeRequest encode;
  ShowRequest show;
  std::string checkpoint;  // eval, inspect, predict: a checkpoint file, or a folder of checkpoints
  EvalRequest eval;
  std::optional<SavedWeights> weights;  // eval, predict; empty: the average if there is one
  InspectRequest inspect;
  PredictRequest predict;
  Compared compared;
  AllreduceBench allreduce;
  CheckpointBench checkpoint_bench;
  double input_seconds = 1;  // bench input: of each measurement
  TimedSteps steps;
  ScalingBench scaling;
  TourRequest tour;
  ScreenRequest screen;
  double world_begun_at = 0;  // seconds since the start of the process, noted by the program
  double world_made_at = 0;
};

// Throws a usage error of one line that states the problem and points to the help. `extensions` is borrowed and may be
// null.
Invocation parse_command_line(int argc, const char* const* argv, const Extensions* extensions = nullptr);

}  // namespace tutti
