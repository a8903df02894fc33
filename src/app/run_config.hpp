#pragma once
// Everything that a user can choose for a training run: on the command line, in a file, or left at its default. Each is
// one row of option_table.cpp; what is left open (0, empty, "auto") assemble.hpp fills in. The
// trainer's options are made of it.

#include "tutti/backend/precision.hpp"
#include "tutti/base/words.hpp"
#include "tutti/data/image_recipe.hpp"
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

struct OwnParts;

enum class Device { automatic, cpu, cuda };
constexpr std::array<std::string_view, 3> words_of(Device) { return {"auto", "cpu", "cuda"}; }

enum class Comm { automatic, solo, mpi, nccl };
constexpr std::array<std::string_view, 4> words_of(Comm) { return {"auto", "solo", "mpi", "nccl"}; }

enum class ShowProgress { automatic, always, never };
constexpr std::array<std::string_view, 3> words_of(ShowProgress) { return {"auto", "always", "never"}; }

enum class OnDivergence { stop };
constexpr std::array<std::string_view, 1> words_of(OnDivergence) { return {"stop"}; }

// A value and the text that it was read from: files and records repeat the text, the run uses the value. `parse` throws
// a usage error that names the option, and so do these constructors.
template <auto parse>
class Written {
 public:
  using Value = std::decay_t<decltype(parse(std::string()))>;

  Written() : Written(std::string()) {}
  Written(std::string text) : text_(std::move(text)), value_(parse(text_)) {}
  Written(const char* text) : Written(std::string(text)) {}

  const std::string& text() const { return text_; }
  const Value& operator*() const { return value_; }
  const Value* operator->() const { return &value_; }

 private:
  std::string text_;
  Value value_;
};

// "--checkpoint-every": a number of steps, epochs or seconds, or "end" for none of them. Empty means each epoch, and
// 15 minutes within a longer one.
struct CheckpointInterval {
  std::int64_t steps = 0;
  std::int64_t epochs = 0;
  double seconds = 0;  // since the last checkpoint
};
CheckpointInterval parse_checkpoint_every(const std::string& text);
// The same for people: "every 500 steps and at the end".
std::string checkpoint_every_text(const CheckpointInterval& interval);

// "--time-limit" in seconds: 3600, 90s, 90m, 1h30m, HH:MM:SS or D-HH:MM:SS; empty means none, 0.
double parse_time_limit(const std::string& text);

// "--part-map": even, auto, or a list by rank: "3,3,2".
PartMapOptions parse_part_map(const std::string& text);
inline constexpr int kMostParts = 65536;

// "1,2,4" within 1 .. all, ascending, as the value of `option`; empty means 1, 2, 4 .. and all. Throws a usage error.
std::vector<int> parse_counts(std::string_view option, const std::string& text, int all);

struct RunConfig {
  std::string data = "glyphs";
  std::string test_data;
  double validation_ratio = 0;
  bool skip_bad_images = false;
  bool verify_data = false;
  std::int64_t resident_mib = 0;
  bool exif = true;
  std::int64_t image_size = 0;
  Augment augment = Augment::none;
  std::string normalize = "none";
  LastBatch last_batch = LastBatch::keep;
  Shuffle shuffle = Shuffle::global;

  std::string model = "lenet";
  std::string init_from;
  std::optional<Initializer> init;  // none: the model's

  std::int64_t epochs = 5;
  std::int64_t steps = 0;
  std::int64_t batch_size = 128;
  OptimizerOptions optimizer;
  double label_smoothing = 0;
  LrPlan rate{.warmup_epochs = 0.25};  // but for the periods
  std::int64_t schedule_epochs = 0;
  Written<parse_lr_period> lr_period;
  std::int64_t seed = 0;

  std::int64_t parts = 0;
  Written<parse_part_map> part_map{"even"};
  std::int64_t threads = 0;
  Device device = Device::automatic;
  Precision precision = Precision::fp32;
  bool tiled_convolutions = true;
  Comm comm = Comm::automatic;
  std::optional<Exchange> exchange;  // none: by --parts
  bool shard_optimizer = false;
  double bucket_mib = 0;
  std::int64_t in_flight = 1;
  bool share_device = false;
  double stall_timeout = 300;
  std::string watch_interface;
  std::int64_t verify_replicas = 0;
  OnDivergence on_divergence = OnDivergence::stop;
  OnNotFinite on_nonfinite = OnNotFinite::stop;
  bool allow_mixed_processors = false;
  bool search_plans = true;
  std::string plan_cache;
  bool record_steps = true;

  std::string out;
  bool resume = false;
  Written<parse_checkpoint_every> checkpoint_every;
  std::int64_t keep_checkpoints = 3;
  bool keep_best = false;
  Written<parse_time_limit> time_limit;

  std::int64_t test_every = 1;
  std::int64_t log_every = 0;
  std::int64_t digest_every = 0;
  std::string sample_log;
  ShowProgress progress = ShowProgress::automatic;
  bool quiet = false;
  std::string trace;
  std::string rehearse;  // whose words were checked when they were read

  std::string config;
  bool dry_run = false;

  const OwnParts* own = nullptr;  // Borrowed: what --model and --data name besides what is built in
};

// Throws a usage error for options that contradict each other, and for what the trainer refuses of them.
void refuse_contradictions(const RunConfig& config);

// Fills in parts, threads and exchange for a run on so many ranks. Throws usage errors for what does not go together.
void settle_parts(RunConfig& config, int ranks, int fair_threads);

// Of a configuration in which nothing is left open.
TrainerOptions resolve_options(const RunConfig& config, const NetworkSpec& model);

// Throws a usage error for options that are for nothing without --out, when that is missing. Only training has it.
void refuse_without_out(const RunConfig& config);

// A list that a checkpoint holds fits one number of ranks, and only says who computes what: on another number, and
// where none is given anew, it becomes "even". Returns a note that says so, or nothing.
std::string drop_stored_part_map(RunConfig& config, const std::set<std::string>& given, int ranks);

}  // namespace tutti
