#pragma once
// From words to an invocation. Nothing is opened, started or printed here.

#include "run_config.hpp"

#include <cstdint>
#include <set>
#include <string>
#include <vector>

namespace tutti {

enum class Command { print_text, train, bench_allreduce, bench_input, bench_scaling, data_convert, data_info };

struct AllreduceBench {
  std::int64_t min_bytes = 4;
  std::int64_t max_bytes = std::int64_t{64} << 20;
  std::int64_t repeats = 20;
};

struct ScalingBench {
  std::string mode = "both";  // strong, weak or both
  std::int64_t warmup_steps = 5;
  std::int64_t timed_steps = 20;
};

struct InputBench {
  double seconds = 1;  // of each measurement
};

struct Invocation {
  Command command = Command::train;
  std::string text;                // print_text: help or version
  std::vector<std::string> words;  // as given, for the run record
  RunConfig run;
  std::set<std::string> given;  // names of run options that the user chose
  std::string ranks;            // bench: rank counts, comma separated; empty: doubling up to all
  std::string json;             // bench: where the results go as JSON
  std::string target;           // data convert: the file to write
  AllreduceBench allreduce;
  InputBench input;
  ScalingBench scaling;
};

// Throws a usage error in one line that says what is wrong and where help is.
Invocation parse_command_line(int argc, const char* const* argv);

}  // namespace tutti
