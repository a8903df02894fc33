#pragma once
// From words to an invocation. Nothing is opened, started or printed here.

#include "run_config.hpp"

#include <array>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

namespace tutti {

struct Command;

enum class EvalSet { test, train, any };
constexpr std::array<std::string_view, 3> words_of(EvalSet) { return {"test", "train", "any"}; }

struct EvalRequest {
  std::string checkpoint;     // path of the file, or of a folder of such
  std::optional<EvalSet> on;  // none: test, or all images of other data that hold no test set
  bool classes = false;       // class by class, too
  std::string mistakes;       // folder for the pictures of the most confident mistakes; empty: none
};

enum class PredictSets { test, train, all };
constexpr std::array<std::string_view, 3> words_of(PredictSets) { return {"test", "train", "all"}; }

struct PredictRequest {
  std::string checkpoint;           // path of the file, or of a folder of such
  std::vector<std::string> images;  // files, and folders of such; none: a data set's
  std::optional<PredictSets> on;    // of it; none: test where there is one, else train
  std::int64_t top = 1;             // classes printed of each image
  bool probabilities = false;       // of all classes
  std::string csv;                  // where they go as CSV; "-": stdout
  bool csv_safe = false;            // without what a spreadsheet would compute, or a terminal obey
};

struct InspectRequest {
  std::string checkpoint;  // path of the file, or of a folder of such
  std::string tensor;      // whose values are asked for; empty: everything but values
  std::string seal;        // the sealed copy to write first
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
};

struct CheckpointBench {
  std::string folder = ".";  // on the disk to be measured
  std::int64_t rounds = 7;
};

// Of the benches that train.
struct TimedSteps {
  std::int64_t warmup = 5;
  std::int64_t timed = 20;
  std::int64_t at_once = 1;  // steps between two looks at the clock
};

enum class ScalingMode { strong, weak, both };
constexpr std::array<std::string_view, 3> words_of(ScalingMode) { return {"strong", "weak", "both"}; }

struct ScalingBench {
  ScalingMode mode = ScalingMode::both;
  std::string nodes;        // node counts to measure, whole nodes each, comma separated; empty: up to all
  std::string exchanges;    // to measure, comma separated; empty: the run's
  std::int64_t rounds = 1;  // of all points, in turns
  bool paced = false;       // compute is slept through, as one rank's steps were measured
};

struct InputBench {
  double seconds = 1;  // of each measurement
};

struct TourRequest {
  std::string to;       // number or name of the last station; empty: all
  bool lists = false;   // the stations, and no more
  bool pauses = false;  // after each, for whoever reads
};

struct ShowRequest {
  std::int64_t count = 32;
  std::int64_t epoch = 1;
  std::int64_t step = 0;  // of the run, counted from 1; 0: the epoch's first
  bool beside = false;
};

struct Invocation {
  const Command* command = nullptr;  // null: `text` is printed, or a companion takes over
  std::string called;                // that command, as users write it
  std::string text;                  // help or version, or what the companion reads
  std::filesystem::path companion;   // the program that takes over
  std::vector<std::string> words;    // as given, for the run record; a companion's own
  RunConfig run;
  std::set<std::string> given;      // names of run options that the user chose
  std::vector<std::string> faults;  // of their values, where check is to go on; else the first one is thrown
  std::string ranks;   // bench allreduce, exchange, scaling: rank counts, comma separated; empty: doubling up to all
  std::string json;    // bench, check, eval, inspect, predict: where the results go as JSON
  std::string target;  // data convert, data show: the file to write
  std::int64_t threads = 0;  // data convert: that decode; 0: one per core of this process
  ShowRequest show;
  EvalRequest eval;
  InspectRequest inspect;
  PredictRequest predict;
  Compared compared;
  AllreduceBench allreduce;
  CheckpointBench checkpoint;
  InputBench input;
  TimedSteps steps;
  ScalingBench scaling;
  TourRequest tour;
  double world_begun_at = 0;  // seconds since the start of the process, noted by the program
  double world_made_at = 0;
};

// Throws a usage error in one line that says what is wrong and where help is. `own` is borrowed, and may be null.
Invocation parse_command_line(int argc, const char* const* argv, const OwnParts* own = nullptr);

}  // namespace tutti
