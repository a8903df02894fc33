#pragma once
// From a user's words and numbers to the trainer's options. Every word is checked here, before anything is opened.

#include "tutti/nn/network_spec.hpp"
#include "tutti/train/trainer.hpp"

#include "run_config.hpp"

#include <cstdint>
#include <set>
#include <string>
#include <string_view>
#include <vector>

namespace tutti {

// Throws a usage error that names the option, the word and the choices.
void refuse_unknown_words(const RunConfig& config);

// `config` has its zeros filled in. Throws usage errors for numbers out of range.
TrainerOptions resolve_options(const RunConfig& config, const NetworkSpec& model);

// Throws a usage error for options that are for nothing without --out, when that is missing. Only training has it.
void refuse_without_out(const RunConfig& config);

// "--checkpoint-every": a number of steps, epochs or seconds, or "end" for none of them. Empty means each epoch, and
// 15 minutes within a longer one. Throws a usage error.
struct CheckpointInterval {
  std::int64_t steps = 0;
  std::int64_t epochs = 0;
  double seconds = 0;  // since the last checkpoint
};
CheckpointInterval parse_checkpoint_every(const std::string& text);
// The same for people: "every 500 steps and at the end".
std::string checkpoint_every_text(const CheckpointInterval& interval);

// "--time-limit" in seconds: 3600, 90s, 90m, 1h30m, HH:MM:SS or D-HH:MM:SS; empty means none, 0. Throws a usage error.
double parse_time_limit(const std::string& text);

// even, auto, or a list by rank: "3,3,2". Throws a usage error.
PartMapOptions parse_part_map(const std::string& text);
// A list that a checkpoint holds fits one number of ranks, and only says who computes what: on another number, and
// where none is given anew, it becomes "even". Returns a note that says so, or nothing.
std::string drop_stored_part_map(RunConfig& config, const std::set<std::string>& given, int ranks);

// "1,2,4" within 1 .. all, ascending; empty means 1, 2, 4 .. and all. Throws a usage error.
std::vector<int> parse_rank_counts(const std::string& text, int all);
// The same for another option of that kind.
std::vector<int> parse_counts(std::string_view option, const std::string& text, int all);

}  // namespace tutti
