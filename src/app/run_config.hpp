#pragma once
// Everything a user can choose for a training run, as written: on the command line, in a file, or left at its default.
// Words are checked in resolve_options.hpp, zeros filled in by assemble.hpp.

#include <cstdint>
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
  std::string exif = "on";
  std::int64_t image_size = 0;
  std::string augment = "none";
  std::string normalize = "none";
  std::string last_batch = "keep";
  std::string shuffle = "global";

  std::string model = "lenet";
  std::string init_from;
  std::string init = "model";

  std::int64_t epochs = 5;
  std::int64_t steps = 0;
  std::int64_t batch_size = 128;
  double lr = 0.05;
  std::string optimizer = "sgd";
  double momentum = 0.9;
  bool nesterov = false;
  double weight_decay = 0;
  double adam_beta1 = 0.9;
  double adam_beta2 = 0.999;
  double adam_epsilon = 1e-8;
  std::string no_decay = "none";
  double clip_norm = 0;
  double label_smoothing = 0;
  std::string schedule = "constant";
  std::int64_t schedule_epochs = 0;
  std::string lr_period;
  double lr_decay = 0.1;
  double min_lr = 0;
  double warmup_epochs = 0.25;
  std::int64_t seed = 0;

  std::int64_t parts = 0;
  std::string part_map = "even";
  std::int64_t threads = 0;
  std::string device = "auto";
  std::string precision = "fp32";
  std::string tiled_convolutions = "on";
  std::string comm = "auto";
  std::string exchange = "auto";
  bool shard_optimizer = false;
  double bucket_mib = 0;
  std::int64_t in_flight = 1;
  bool share_device = false;
  double stall_timeout = 300;
  std::string watch_interface;
  std::int64_t verify_replicas = 0;
  std::string on_divergence = "stop";
  std::string on_nonfinite = "stop";
  bool allow_mixed_processors = false;
  std::string search_plans = "on";
  std::string plan_cache;
  std::string record_steps = "on";

  std::string out;
  bool resume = false;
  std::string checkpoint_every;
  std::int64_t keep_checkpoints = 3;
  bool keep_best = false;
  std::string time_limit;

  std::int64_t test_every = 1;
  std::int64_t log_every = 0;
  std::int64_t digest_every = 0;
  std::string sample_log;
  std::string progress = "auto";
  bool quiet = false;
  std::string trace;
  std::string rehearse;

  std::string config;
  bool dry_run = false;

  const OwnParts* own = nullptr;  // Borrowed: what --model and --data name besides what is built in
};

}  // namespace tutti
