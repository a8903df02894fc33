#pragma once
// All options of a training run, from the command line, a file, or defaults. Each is a row of option_table.cpp. Values
// that are left open (0, empty, "auto") are filled in by assemble.hpp. The options of the trainer are made from these.

#include "tutti/backend/precision.hpp"
#include "tutti/base/enum_names.hpp"
#include "tutti/data/image_recipe.hpp"
#include "tutti/data/open_data.hpp"
#include "tutti/nn/network_spec.hpp"
#include "tutti/train/trainer.hpp"

#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
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

// A value and the text that it was parsed from: files and records repeat the text, the run uses the value. `parse`
// throws a usage error that names the option, and so do these constructors.
template <auto parse>
class ParsedOption {
 public:
  using Value = std::decay_t<decltype(parse(std::string()))>;

  ParsedOption() : ParsedOption(std::string()) {}
  ParsedOption(std::string text) : text_(std::move(text)), value_(parse(text_)) {}
  ParsedOption(const char* text) : ParsedOption(std::string(text)) {}

  const std::string& text() const { return text_; }
  const Value& operator*() const { return value_; }
  const Value* operator->() const { return &value_; }

 private:
  std::string text_;
  Value value_;
};

// "--checkpoint-every": a number of steps, epochs or seconds, or "end": only at the end. Empty means every epoch, and
// every 15 minutes within a longer epoch.
struct CheckpointInterval {
  std::int64_t steps = 0;
  std::int64_t epochs = 0;
  double seconds = 0;  // since the last checkpoint
};
CheckpointInterval parse_checkpoint_every(const std::string& text);
// The same for users: "every 500 steps and at the end".
std::string checkpoint_every_text(const CheckpointInterval& interval);

// "--time-limit" in seconds: 3600, 90s, 90m, 1h30m, HH:MM:SS or D-HH:MM:SS; empty means none, 0.
double parse_time_limit(const std::string& text);

// "--part-map": even, auto, or a list by rank: "3,3,2".
PartMapOptions parse_part_map(const std::string& text);
inline constexpr int kMaxParts = 65536;

// Parses the value of `option`, ascending counts of 1 to `all`: "1,2,4". Empty means powers of 2 and `all`. Throws a
// usage error.
std::vector<int> parse_counts(std::string_view option, const std::string& text, int all);

struct RunConfig {
  std::string data = "glyphs";
  std::string test_data;
  double validation_ratio = 0;
  Split validation_split = Split::stratified;
  bool skip_bad_images = false;
  bool verify_data = false;
  std::int64_t resident_mib = 0;
  bool exif = true;
  std::int64_t image_size = 0;
  ParsedOption<parse_augment> augment{"none"};
  std::string normalize = "none";
  LastBatch last_batch = LastBatch::keep;
  Shuffle shuffle = Shuffle::global;

  std::string model = "lenet";
  std::string init_from;
  bool new_head = false;
  std::optional<Initializer> init;  // empty: that of the model

  std::int64_t epochs = 5;
  std::int64_t steps = 0;
  BatchNorm batch_norm = BatchNorm::part;
  std::int64_t batch_size = 128;
  OptimizerOptions optimizer;  // its factors are in the next two
  ParsedOption<parse_lr_factors> lr_factors;
  ParsedOption<parse_decay_factors> decay_factors;
  std::string freeze;
  AverageOptions average;
  double label_smoothing = 0;
  std::string class_weights = "none";
  LrPlan rate{.warmup_epochs = 0.25};  // its periods are in lr_period
  std::int64_t schedule_epochs = 0;
  ParsedOption<parse_lr_period> lr_period;
  std::int64_t seed = 0;

  std::int64_t parts = 0;
  ParsedOption<parse_part_map> part_map{"even"};
  std::int64_t threads = 0;
  Device device = Device::automatic;
  std::optional<Precision> precision;  // empty: tf32 if all ranks use GPUs that support it, else fp32
  bool tiled_convolutions = true;
  Comm comm = Comm::automatic;
  std::optional<Exchange> exchange;  // empty: exact with --parts, else ring
  bool shard_optimizer = false;
  Wire wire = Wire::fp32;
  double bucket_mib = 0;
  std::int64_t in_flight = 1;
  bool share_device = false;
  double stall_timeout = 300;
  std::string watch_interface;
  std::int64_t verify_replicas = 0;
  std::int64_t audit_every = 0;
  OnDivergence on_divergence = OnDivergence::stop;
  OnNotFinite on_nonfinite = OnNotFinite::stop;
  bool allow_mixed_processors = false;
  bool search_plans = true;
  std::string plan_cache = "auto";
  bool record_steps = true;

  std::string out;
  bool resume = false;
  ParsedOption<parse_checkpoint_every> checkpoint_every;
  std::int64_t keep_checkpoints = 3;
  bool keep_best = false;
  OnSaveFailure on_save_failure = OnSaveFailure::proceed;
  ParsedOption<parse_time_limit> time_limit;

  std::int64_t test_every = 1;
  Views views = Views::none;
  EarlyStop early_stop;
  std::int64_t log_every = 0;
  std::int64_t digest_every = 0;
  std::string sample_log;
  ShowProgress progress = ShowProgress::automatic;
  bool quiet = false;
  std::string trace;
  std::string rehearse;  // was validated when it was read

  std::string config;
  bool dry_run = false;

  const Extensions* extensions = nullptr;  // borrowed; of a custom program
  std::set<std::string> given;             // the names of the options that the command line or a file has
};

// Throws a usage error for options that contradict each other or that the trainer refuses.
void refuse_contradictions(const RunConfig& config);

// Fills in parts, threads and exchange for a run on `ranks` ranks. Throws a usage error for incompatible options.
void resolve_parts(RunConfig& config, int ranks, int fair_threads);

// The trainer's options for a configuration in which nothing is left open.
TrainerOptions resolve_options(const RunConfig& config, const NetworkSpec& model);

// Throws a usage error for options that need --out if that is missing. Only training has --out.
void refuse_without_out(const RunConfig& config);

// A list in a checkpoint fits only one number of ranks, and does not affect the result. On another number of ranks, if
// none is given again, it becomes "even". Returns a note for users about that, or an empty text.
std::string drop_stored_part_map(RunConfig& config, int ranks);

}  // namespace tutti
