#include "option_table.hpp"

#include "tutti/base/error.hpp"
#include "tutti/train/trainer.hpp"
#include "tutti/watch/rehearsal.hpp"

#include "word_faults.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <utility>

namespace tutti {
namespace {

constexpr std::int64_t kMany = 1'000'000'000;
constexpr std::int64_t kMillion = 1'000'000;

TextValue text(std::string& value) {
  return {.read = [&value] { return value; }, .write = [&value](const std::string& word) { value = word; }};
}

TextValue checked(std::string& value, void (*check)(const std::string&)) {
  return {.read = [&value] { return value; },
          .write =
              [&value, check](const std::string& word) {
                check(word);
                value = word;
              }};
}

template <auto parse>
TextValue written(Written<parse>& value) {
  return {.read = [&value] { return value.text(); }, .write = [&value](const std::string& word) { value = word; }};
}

template <Worded E>
TextValue one_of(E& value) {
  const auto words = words_of(value);
  return {.choices = {words.begin(), words.end()},
          .read = [&value] { return std::string(name_of(value)); },
          .write = [&value](const std::string& word) { value = value_named<E>(word).value(); }};
}

template <Worded E>
TextValue one_of(std::string_view left_open, std::optional<E>& value) {
  const auto words = words_of(E{});
  TextValue text{.choices = {left_open},
                 .read = [&value, left_open] { return std::string(value ? name_of(*value) : left_open); },
                 .write = [&value](const std::string& word) { value = value_named<E>(word); }};
  text.choices.insert(text.choices.end(), words.begin(), words.end());
  return text;
}

TextValue either(std::string_view no, std::string_view yes, bool& value) {
  return {.choices = {no, yes},
          .read = [&value, no, yes] { return std::string(value ? yes : no); },
          .write = [&value, yes](const std::string& word) { value = word == yes; }};
}

TextValue on_or_off(bool& value) {
  TextValue text = either("off", "on", value);
  text.choices = {"on", "off"};
  return text;
}

std::vector<RunOption> data_options(RunConfig& c) {
  using enum OptionUse;
  const std::string data = "Data";
  return {
      {"data", data, "glyphs, synthetic:NxCxHxW:classes, a folder, an HDF5 file, or a name to look up", place,
       text(c.data)},
      {"test-data", data, "folder of the test set, where it lies apart", place, text(c.test_data)},
      {"validation-ratio", data, "share of the training set that is held out as the test set", fixed,
       RealValue{&c.validation_ratio}},
      {"skip-bad-images", data, "leave out images that cannot be decoded, and count them", fixed, &c.skip_bad_images},
      {"verify-data", data,
       "read all data before the start: decode every image, compare contents with the checkpoint's", output,
       &c.verify_data},
      {"resident-mib", data, "HDF5 data sets above this are read as needed, not held in memory; 0: a quarter of it",
       place, WholeValue{&c.resident_mib, 0, kMany}},
      {"exif", data, "turn JPEG images upright as their EXIF orientation says: on or off", fixed, on_or_off(c.exif)},
      {"image-size", data, "side of the images that the network gets; 0: as the data are", fixed,
       WholeValue{&c.image_size, 0, 65536}},
      {"augment", data, "of training images: none, crop-flip, pad-crop-flip or resized-crop", fixed, one_of(c.augment)},
      {"normalize", data, "none, auto (by the training set's mean and deviation) or M/S, of pixel / 255", fixed,
       text(c.normalize)},
      {"last-batch", data, "samples that fill no whole batch: keep, discard or rollover", fixed, one_of(c.last_batch)},
      {"shuffle", data, "global (all samples, each epoch), partition (each part its block) or none", fixed,
       one_of(c.shuffle)},
  };
}

std::vector<RunOption> training_options(RunConfig& c) {
  using enum OptionUse;
  const std::string network = "Network", training = "Training";
  return {
      {"model", network, "lenet, resnet18, resnet34, resnet50, vgg11, mlp and others, or the path of a model file",
       fixed, text(c.model)},
      {"init-from", network,
       "run, RUN@best, RUN@STEP or file whose weights this run starts from, with its network unless --model is given",
       fixed, text(c.init_from)},
      {"init", network, "initial weights: model (its own), normal, xavier or kaiming", fixed, one_of("model", c.init)},
      {"epochs", training, "passes over the training set", changeable, WholeValue{&c.epochs, 1, kMillion}},
      {"steps", training, "end after this many steps, even inside an epoch, on --epochs' schedule; 0: at its end",
       changeable, WholeValue{&c.steps, 0, kMany}},
      {"batch-size", training, "samples per step, over all ranks", fixed, WholeValue{&c.batch_size, 1, kMany}},
      {"lr", training, "learning rate", fixed, RealValue{&c.rate.base}},
      {"optimizer", training, "sgd, adamw or lars", fixed, one_of(c.optimizer.kind)},
      {"momentum", training, "of sgd and lars; 0: none", fixed, RealValue{&c.optimizer.momentum}},
      {"nesterov", training, "sgd looks ahead by the momentum", fixed, &c.optimizer.nesterov},
      {"weight-decay", training, "times the weight, added to every gradient; adamw: taken off the weight", fixed,
       RealValue{&c.optimizer.weight_decay}},
      {"adam-beta1", training, "adamw: decay of the gradients' running mean", fixed, RealValue{&c.optimizer.beta1}},
      {"adam-beta2", training, "adamw: decay of the squared gradients' running mean", fixed,
       RealValue{&c.optimizer.beta2}},
      {"adam-epsilon", training, "adamw: added to the root that a step is divided by", fixed,
       RealValue{&c.optimizer.epsilon}},
      {"no-decay", training, "what weight decay, and lars, leave alone: none or norms-biases", fixed,
       either("none", "norms-biases", c.optimizer.exempts_norms_and_biases)},
      {"clip-norm", training, "greatest norm of all gradients together; 0: no limit", fixed,
       RealValue{&c.optimizer.clip_norm}},
      {"label-smoothing", training, "share of each label spread over all classes, for the training loss", fixed,
       RealValue{&c.label_smoothing, "at least 0 and below 1", [](double v) { return v >= 0 && v < 1; }}},
      {"schedule", training, "of the learning rate: constant, step or cosine", fixed, one_of(c.rate.schedule)},
      {"schedule-epochs", training,
       "epochs over which a cosine schedule falls, for a run that is to be made longer later; 0: --epochs", changeable,
       WholeValue{&c.schedule_epochs, 0, kMillion, kScheduleOfLaunch}},
      {"lr-period", training,
       "step schedule: every N epochs (10), or at these (30,60,80), from the run's start, warm-up included", fixed,
       written(c.lr_period)},
      {"lr-decay", training, "step schedule: factor of each drop", fixed, RealValue{&c.rate.decay}},
      {"min-lr", training, "step and cosine schedules: least learning rate", fixed, RealValue{&c.rate.least}},
      {"warmup-epochs", training, "linear rise of the learning rate at the start; 0: none", fixed,
       RealValue{&c.rate.warmup_epochs}},
      {"seed", training, "of every random number", fixed, WholeValue{&c.seed}},
  };
}

// Where and how, and what is kept of it.
std::vector<RunOption> running_options(RunConfig& c) {
  using enum OptionUse;
  const std::string ranks = "Ranks and devices", keeping = "Keeping";
  return {
      {"parts", ranks, "slices of every batch, fixed for the life of the run; 0: one per rank", fixed,
       WholeValue{&c.parts, 0, kMostParts}},
      {"part-map", ranks,
       "which rank computes which parts: even, auto (by speed; never changes a bit) or each rank's parts, as 3,3,2",
       changeable, written(c.part_map)},
      {"threads", ranks, "of each part; 0: the node's cores shared out", fixed, WholeValue{&c.threads, 0, 4096}},
      {"device", ranks, "auto, cpu or cuda", changeable, one_of(c.device)},
      {"precision", ranks, "fp32, bf16 or, on GPUs, tf32", fixed, one_of(c.precision)},
      {"tiled-convolutions", ranks,
       "on CPUs, 3x3 and 5x5 windows by tiles, first layers by own loops, where faster: on or off", fixed,
       on_or_off(c.tiled_convolutions)},
      {"comm", ranks, "auto, solo, mpi or, between GPUs, nccl", changeable, one_of(c.comm)},
      {"exchange", ranks,
       "how gradients are summed: ring, exact, sharded or central; auto: exact with --parts, else ring", fixed,
       one_of("auto", c.exchange)},
      {"shard-optimizer", ranks, "each rank keeps its share of the optimizer's state; with exact: the bits stay",
       changeable, &c.shard_optimizer},
      {"bucket-mib", ranks, "gradients exchanged at a time, MiB; 0: 4, between GPUs 16", fixed,
       RealValue{&c.bucket_mib, "0 to 4096", [](double v) { return v >= 0 && v <= 4096; }}},
      {"in-flight", ranks, "batches prepared ahead, on GPUs steps enqueued ahead: 0, 1 or 2; never changes a bit",
       changeable, WholeValue{&c.in_flight, 0, 2}},
      {"share-device", ranks, "let several ranks use one GPU: slow, for tests", changeable, &c.share_device},
      {"search-plans", ranks, "on GPUs, choose each convolution's algorithm by timing: on or off", changeable,
       on_or_off(c.search_plans)},
      {"plan-cache", ranks, "file that keeps what was chosen so; read at the start, written when it has grown",
       changeable, text(c.plan_cache)},
      {"record-steps", ranks, "on GPUs, enqueue each step as one recorded graph: on or off; never changes a bit",
       changeable, on_or_off(c.record_steps)},
      {"out", keeping, "folder for checkpoints, metrics.jsonl and the resolved options; none: nothing is written",
       output, text(c.out)},
      {"resume", keeping, "continue from the newest checkpoint in --out", call, &c.resume},
      {"checkpoint-every", keeping,
       "Nsteps, Nepochs, Ns (seconds) or end; none: each epoch, and every 15 minutes of a longer one; always at the "
       "end",
       changeable, written(c.checkpoint_every)},
      {"keep-checkpoints", keeping, "number of newest checkpoints to keep, 2 or more; 0: all", changeable,
       WholeValue{&c.keep_checkpoints, 2, kMany, 0}},
      {"keep-best", keeping, "save after every best evaluation so far, and keep that one besides", changeable,
       &c.keep_best},
      {"time-limit", keeping, "stop with a checkpoint and status 75 within so long, as 3600, 90m or 12:00:00; none: no",
       output, written(c.time_limit)},
      {"config", keeping, "TOML file of options, keys as here; the command line overrides it", call, text(c.config)},
      {"dry-run", keeping, "print the resolved options as TOML and end", call, &c.dry_run},
  };
}

// What is reported while it runs, and what it does when something goes wrong.
std::vector<RunOption> watching_options(RunConfig& c) {
  using enum OptionUse;
  const std::string watching = "Watching", trust = "Trust";
  return {
      {"test-every", watching, "evaluate after every N epochs and the last; 0: never", changeable,
       WholeValue{&c.test_every, 0, kMany}},
      {"log-every", watching, "print the loss every N steps, and keep it in metrics.jsonl; 0: no", changeable,
       WholeValue{&c.log_every, 0, kMany}},
      {"digest-every", watching, "record digests of weights, gradients and optimizer every N steps; 0: no", changeable,
       WholeValue{&c.digest_every, 0, kMany}},
      {"sample-log", watching,
       "file that gets each step's samples, part by part, a JSON line a step; begun anew unless resumed", output,
       text(c.sample_log)},
      {"progress", watching,
       "on stderr: a bar (auto: on a terminal; always), else a line every 30 s at the latest; or never", output,
       one_of(c.progress)},
      {"quiet", watching, "results only: no banner, no notes", output, &c.quiet},
      {"trace", watching,
       "file that gets what every rank did when, a few KB a step and rank, for Perfetto or chrome://tracing", output,
       text(c.trace)},
      {"stall-timeout", trust, "seconds without progress after which the job names who is late, and ends with 86",
       changeable, RealValue{&c.stall_timeout}},
      {"watch-interface", trust, "network interface by which hosts exchange the status of their ranks; none: chosen",
       output, text(c.watch_interface)},
      {"verify-replicas", trust,
       "compare all ranks' state every N steps, the optimizer's not with sharded or central: it has one owner",
       changeable, WholeValue{&c.verify_replicas, 0, kMany}},
      {"on-divergence", trust, "stop with 87; --resume then continues from the newest checkpoint, which was equal",
       changeable, one_of(c.on_divergence)},
      {"on-nonfinite", trust, "when a loss or gradient is NaN or infinite: stop with 88, or skip the step", changeable,
       one_of(c.on_nonfinite)},
      {"allow-mixed-processors", trust,
       "compute, with --exchange exact, on processors of other instructions, which change the bits", changeable,
       &c.allow_mixed_processors},
      {"rehearse", trust, "a fault to inject, as kill:rank=2,step=17; see the README", call,
       checked(c.rehearse, check_rehearsal)},
  };
}

}  // namespace

std::vector<RunOption> run_options(RunConfig& config) {
  std::vector<RunOption> options = data_options(config);
  for (const auto& more : {training_options, running_options, watching_options}) {
    for (RunOption& option : more(config)) options.push_back(std::move(option));
  }
  return options;
}

void set_text(const RunOption& option, const std::string& text) {
  const TextValue& value = std::get<TextValue>(option.value);
  if (const std::string_view instead = moved_to(fmt::format("{} {}", option.name, text)); !instead.empty()) {
    throw Error(ErrorSource::usage, fmt::format("--{} {} no longer exists: {}", option.name, text, instead));
  }
  if (!value.choices.empty() && std::ranges::count(value.choices, text) == 0) {
    throw Error(ErrorSource::usage,
                fmt::format("--{} {}: must be one of {}", option.name, text, fmt::join(value.choices, ", ")));
  }
  value.write(text);
}

void require_in_range(const RunOption& option) {
  const auto refuse = [&](auto value, const std::string& range) {
    throw Error(ErrorSource::usage, fmt::format("--{} {}: must be {}", option.name, value, range));
  };
  if (const auto* const whole = std::get_if<WholeValue>(&option.value)) {
    const std::int64_t value = *whole->at;
    const bool is_right = (value >= whole->least && value <= whole->most) || value == whole->besides;
    if (!is_right) refuse(value, fmt::format("{} to {}", whole->least, whole->most));
  } else if (const auto* const real = std::get_if<RealValue>(&option.value)) {
    if (real->range != nullptr && !real->is_right(*real->at)) refuse(*real->at, real->range);
  }
}

}  // namespace tutti
