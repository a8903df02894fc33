#pragma once
// Everything that a user can choose for a training run: on the command line, in a file, or left at its default. Each is
// one row of option_table.cpp; what is left open (0, empty, "auto") assemble.hpp fills in.

#include "tutti/backend/precision.hpp"
#include "tutti/data/image_recipe.hpp"
#include "tutti/data/split_batch_sampler.hpp"
#include "tutti/nn/network_spec.hpp"
#include "tutti/train/lr_schedule.hpp"
#include "tutti/train/optimizer.hpp"
#include "tutti/train/trainer_options.hpp"

#include "option_values.hpp"

#include <cstdint>
#include <optional>
#include <string>

namespace tutti {

struct OwnParts;

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
  double lr = 0.05;
  OptimizerKind optimizer = OptimizerKind::sgd;
  double momentum = 0.9;
  bool nesterov = false;
  double weight_decay = 0;
  double adam_beta1 = 0.9;
  double adam_beta2 = 0.999;
  double adam_epsilon = 1e-8;
  bool exempts_norms_and_biases = false;
  double clip_norm = 0;
  double label_smoothing = 0;
  Schedule schedule = Schedule::constant;
  std::int64_t schedule_epochs = 0;
  Written<parse_lr_period> lr_period;
  double lr_decay = 0.1;
  double min_lr = 0;
  double warmup_epochs = 0.25;
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

}  // namespace tutti
