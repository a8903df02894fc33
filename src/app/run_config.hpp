#pragma once
// All options of a training run, from the command line, a file, or defaults, in the structs of the code that uses them.
// Each is a row of option_table.cpp. Values that are left open (0, empty, "auto") are filled in by assemble.hpp.

#include "tutti/backend/cuda_library.hpp"
#include "tutti/backend/precision.hpp"
#include "tutti/base/enum_names.hpp"
#include "tutti/data/image_recipe.hpp"
#include "tutti/data/open_data.hpp"
#include "tutti/nn/network_spec.hpp"
#include "tutti/train/trainer.hpp"
#include "tutti/watch/stall_watch.hpp"

#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

namespace tutti {

struct Extensions;

enum class Device { automatic, cpu, cuda };
constexpr std::array<std::string_view, 3> enum_names(Device) { return {"auto", "cpu", "cuda"}; }

enum class Comm { automatic, solo, mpi, nccl };
constexpr std::array<std::string_view, 4> enum_names(Comm) { return {"auto", "solo", "mpi", "nccl"}; }

enum class OnSaveFailure { proceed, stop };
constexpr std::array<std::string_view, 2> enum_names(OnSaveFailure) { return {"continue", "stop"}; }

enum class ShowProgress { automatic, always, never };
constexpr std::array<std::string_view, 3> enum_names(ShowProgress) { return {"auto", "always", "never"}; }

enum class OnDivergence { stop };
constexpr std::array<std::string_view, 1> enum_names(OnDivergence) { return {"stop"}; }

// "--checkpoint-every": a number of steps, epochs or seconds, or "end": only at the end.
struct CheckpointInterval {
  std::int64_t steps = 0;
  std::int64_t epochs = 0;
  double seconds = 0;  // since the last checkpoint
};
// The default: every epoch, and every 15 minutes within a longer epoch.
inline constexpr CheckpointInterval kEveryEpoch{.epochs = 1, .seconds = 900};
CheckpointInterval parse_checkpoint_every(const std::string& text);
// The same for users: "every 500 steps and at the end".
std::string checkpoint_every_text(const CheckpointInterval& interval);

// "--keep-steps": a number of steps, auto (as often as costs at most 1 % of the time) or off.
struct KeepInterval {
  std::int64_t steps = 0;  // 0: see is_automatic
  bool is_automatic = false;

  bool is_off() const { return steps == 0 && !is_automatic; }
};
KeepInterval parse_keep_steps(const std::string& text);

// "--time-limit" in seconds: 3600, 90s, 90m, 1h30m, HH:MM:SS or D-HH:MM:SS; empty means none, 0.
double parse_time_limit(const std::string& text);

// "--part-map": even, auto, or a list by rank: "3,3,2".
PartMapOptions parse_part_map(const std::string& text);
inline constexpr int kMaxParts = 65536;

// Parses the value of `option`, ascending counts of 1 to `all`: "1,2,4". Empty means powers of 2 and `all`. Throws a
// usage error.
std::vector<int> parse_counts(std::string_view option, const std::string& text, int all);

// How the processor of each rank, and the communicator between them, are chosen.
struct ProcessorOptions {
  Device device = Device::automatic;
  bool share_device = false;
  std::optional<Precision> precision;  // empty: tf32 if all ranks use GPUs that support it, else fp32
  CudaOptions gpu{};                   // without device and precision, which follow from the above
  std::string plan_cache = "auto";
  Comm comm = Comm::automatic;
};

// What a run writes, and what it prints.
struct OutputOptions {
  std::string folder;  // --out
  bool resume = false;
  CheckpointInterval checkpoint_every = kEveryEpoch;
  std::int64_t keep_checkpoints = 3;
  KeepInterval keep_steps;
  OnSaveFailure on_save_failure = OnSaveFailure::proceed;
  double time_limit = 0;  // seconds; 0: none
  std::string sample_log;
  ShowProgress progress = ShowProgress::automatic;
  bool quiet = false;
  std::string trace;
};

// Options that are more than a number or a word, as they were given: files and records repeat these texts.
struct OptionTexts {
  std::string augment = "none";
  std::string lr_factors;
  std::string decay_factors;
  std::string lr_period;
  std::string part_map = "even";
  std::string checkpoint_every;
  std::string keep_steps = "off";
  std::string time_limit;
};

struct RunConfig {
  DataRequest data{.train = "glyphs"};
  RecipeRequest recipe{.normalize = "none"};
  TrainerOptions trainer{.num_parts = 0, .threads = 0, .epochs = 5, .learning_rate = {.warmup_epochs = 0.25}};
  ProcessorOptions processor;
  OutputOptions output;
  StallWatchOptions watch;
  OptionTexts texts;

  // What resolve_options() makes the rest of the trainer's options from.
  std::optional<Initializer> init;   // empty: that of the model
  std::optional<Exchange> exchange;  // empty: exact with --parts, else ring
  double bucket_mib = 0;
  std::string class_weights = "none";

  std::string model = "lenet";
  std::string init_from;
  bool new_head = false;
  std::string freeze;
  OnDivergence on_divergence = OnDivergence::stop;
  bool allow_mixed_processors = false;
  std::string rehearse;  // was validated when it was read
  std::string config;
  bool dry_run = false;

  const Extensions* extensions = nullptr;  // borrowed; of a custom program
  std::set<std::string> given;             // the names of the options that the command line or a file has
  bool is_adopted = false;                 // it is that of an earlier launch, whose `given` is unknown
};

// Throws a usage error for options that contradict each other or that the trainer refuses, whatever --exchange will be.
void refuse_contradictions(const RunConfig& config);

// Fills in parts, threads and exchange for a run on `ranks` ranks. Throws a usage error for options that contradict the
// exchange or each other.
void resolve_parts(RunConfig& config, int ranks, int fair_threads);

// The trainer's options with those that follow from others, for a configuration in which nothing is left open.
TrainerOptions resolve_options(const RunConfig& config, const NetworkSpec& model);

// Throws a usage error for options that need --out if that is missing. Only training has --out.
void refuse_without_out(const RunConfig& config);

// A list in a checkpoint fits only one number of ranks, and does not affect the result. On another number of ranks, if
// none is given again, it becomes "even". Returns a note for users about that, or an empty text.
std::string drop_stored_part_map(RunConfig& config, int ranks);

}  // namespace tutti
