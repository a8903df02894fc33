#include "option_table.hpp"

#include "tutti/base/error.hpp"
#include "tutti/train/trainer.hpp"

#include "nearest_word.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <sstream>
#include <utility>

namespace tutti {
namespace {

struct ValueText {
  std::string operator()(const std::string* value) const {
    std::string text = "\"";
    for (const char c : *value) {
      const bool is_control = (c >= 0 && c < ' ') || c == '\x7f';
      if (c == '"' || c == '\\') text += '\\';
      text += is_control ? fmt::format("\\u{:04X}", static_cast<int>(c)) : std::string(1, c);
    }
    return text + '"';
  }
  std::string operator()(const std::int64_t* value) const { return fmt::format("{}", *value); }
  std::string operator()(const double* value) const {
    const std::string text = fmt::format("{}", *value);
    return text.find_first_of(".en") == std::string::npos ? text + ".0" : text;
  }
  std::string operator()(const bool* value) const { return *value ? "true" : "false"; }
};

// What is trained, and on what.
std::vector<RunOption> training_options(RunConfig& c) {
  using enum OptionUse;
  const std::string data = "Data", network = "Network", training = "Training";
  return {
      {"data", data, "glyphs, synthetic:NxCxHxW:classes, a folder, an HDF5 file, or a name to look up", place, &c.data},
      {"test-data", data, "folder of the test set, where it lies apart", place, &c.test_data},
      {"validation-ratio", data, "share of the training set that is held out as the test set", fixed,
       &c.validation_ratio},
      {"skip-bad-images", data, "leave out images that cannot be decoded, and count them", fixed, &c.skip_bad_images},
      {"verify-data", data,
       "read all data before the start: decode every image, compare contents with the checkpoint's", output,
       &c.verify_data},
      {"resident-mib", data, "HDF5 data sets above this are read as needed, not held in memory; 0: a quarter of it",
       place, &c.resident_mib},
      {"exif", data, "turn JPEG images upright as their EXIF orientation says: on or off", fixed, &c.exif},
      {"image-size", data, "side of the images that the network gets; 0: as the data are", fixed, &c.image_size},
      {"augment", data, "of training images: none, crop-flip, pad-crop-flip or resized-crop", fixed, &c.augment},
      {"normalize", data, "none, auto (by the training set's mean and deviation) or M/S, of pixel / 255", fixed,
       &c.normalize},
      {"last-batch", data, "samples that fill no whole batch: keep, discard or rollover", fixed, &c.last_batch},
      {"shuffle", data, "global (all samples, each epoch), partition (each part its block) or none", fixed, &c.shuffle},
      {"model", network, "lenet, resnet18, resnet34, resnet50, vgg11, mlp and others, or the path of a model file",
       fixed, &c.model},
      {"init-from", network,
       "run, RUN@best, RUN@STEP or file whose weights this run starts from, with its network unless --model is given",
       fixed, &c.init_from},
      {"init", network, "initial weights: model (its own), normal, xavier or kaiming", fixed, &c.init},
      {"epochs", training, "passes over the training set", changeable, &c.epochs},
      {"steps", training, "end after this many steps, even inside an epoch, on --epochs' schedule; 0: at its end",
       changeable, &c.steps},
      {"batch-size", training, "samples per step, over all ranks", fixed, &c.batch_size},
      {"lr", training, "learning rate", fixed, &c.lr},
      {"optimizer", training, "sgd, adamw or lars", fixed, &c.optimizer},
      {"momentum", training, "of sgd and lars; 0: none", fixed, &c.momentum},
      {"nesterov", training, "sgd looks ahead by the momentum", fixed, &c.nesterov},
      {"weight-decay", training, "times the weight, added to every gradient; adamw: taken off the weight", fixed,
       &c.weight_decay},
      {"adam-beta1", training, "adamw: decay of the gradients' running mean", fixed, &c.adam_beta1},
      {"adam-beta2", training, "adamw: decay of the squared gradients' running mean", fixed, &c.adam_beta2},
      {"adam-epsilon", training, "adamw: added to the root that a step is divided by", fixed, &c.adam_epsilon},
      {"no-decay", training, "what weight decay, and lars, leave alone: none or norms-biases", fixed, &c.no_decay},
      {"clip-norm", training, "greatest norm of all gradients together; 0: no limit", fixed, &c.clip_norm},
      {"label-smoothing", training, "share of each label spread over all classes, for the training loss", fixed,
       &c.label_smoothing},
      {"schedule", training, "of the learning rate: constant, step or cosine", fixed, &c.schedule},
      {"schedule-epochs", training,
       "epochs over which a cosine schedule falls, for a run that is to be made longer later; 0: --epochs", changeable,
       &c.schedule_epochs},
      {"lr-period", training,
       "step schedule: every so many epochs (10), or at these (30,60,80), from the run's start, warm-up included",
       fixed, &c.lr_period},
      {"lr-decay", training, "step schedule: factor of each drop", fixed, &c.lr_decay},
      {"min-lr", training, "step and cosine schedules: least learning rate", fixed, &c.min_lr},
      {"warmup-epochs", training, "linear rise of the learning rate at the start; 0: none", fixed, &c.warmup_epochs},
      {"seed", training, "of every random number", fixed, &c.seed},
  };
}

// Where and how, and what is kept of it.
std::vector<RunOption> running_options(RunConfig& c) {
  using enum OptionUse;
  const std::string ranks = "Ranks and devices", keeping = "Keeping";
  return {
      {"parts", ranks, "slices of every batch, fixed for the life of the run; 0: one per rank", fixed, &c.parts},
      {"part-map", ranks,
       "which rank plays which: even, auto (by speed; never changes a bit) or each rank's parts, as 3,3,2", changeable,
       &c.part_map},
      {"threads", ranks, "of each part; 0: the node's cores shared out", fixed, &c.threads},
      {"device", ranks, "auto, cpu or cuda", changeable, &c.device},
      {"precision", ranks, "fp32, bf16 or, on GPUs, tf32", fixed, &c.precision},
      {"tiled-convolutions", ranks,
       "on CPUs, 3x3 and 5x5 windows by tiles, first layers by own loops, where faster: on or off", fixed,
       &c.tiled_convolutions},
      {"comm", ranks, "auto, solo, mpi or, between GPUs, nccl", changeable, &c.comm},
      {"exchange", ranks, "how gradients meet: ring, exact, sharded or central; auto: exact with --parts, else ring",
       fixed, &c.exchange},
      {"shard-optimizer", ranks, "each rank keeps its share of the optimizer's state; with exact: the bits stay",
       changeable, &c.shard_optimizer},
      {"bucket-mib", ranks, "gradients exchanged at a time, MiB; 0: 4, between GPUs 16", fixed, &c.bucket_mib},
      {"in-flight", ranks, "batches prepared ahead, on GPUs steps enqueued ahead: 0, 1 or 2; never changes a bit",
       changeable, &c.in_flight},
      {"share-device", ranks, "let several ranks use one GPU: slow, for tests", changeable, &c.share_device},
      {"search-plans", ranks, "on GPUs, choose each convolution's algorithm by timing: on or off", changeable,
       &c.search_plans},
      {"plan-cache", ranks, "file that keeps what was chosen so; read at the start, written when it has grown",
       changeable, &c.plan_cache},
      {"record-steps", ranks, "on GPUs, enqueue each step as one recorded graph: on or off; never changes a bit",
       changeable, &c.record_steps},
      {"out", keeping, "folder for checkpoints, metrics.jsonl and the resolved options; none: nothing is written",
       output, &c.out},
      {"resume", keeping, "go on from the newest checkpoint in --out", call, &c.resume},
      {"checkpoint-every", keeping,
       "Nsteps, Nepochs, Ns (seconds) or end; none: each epoch, and every 15 minutes of a longer one; always at the "
       "end",
       changeable, &c.checkpoint_every},
      {"keep-checkpoints", keeping, "so many of the newest stay, 2 or more; 0: all", changeable, &c.keep_checkpoints},
      {"keep-best", keeping, "save after every best evaluation so far, and keep that one besides", changeable,
       &c.keep_best},
      {"time-limit", keeping, "stop with a checkpoint and status 75 within so long, as 3600, 90m or 12:00:00; none: no",
       output, &c.time_limit},
      {"config", keeping, "TOML file of options, keys as here; the command line goes before it", call, &c.config},
      {"dry-run", keeping, "print the resolved options as TOML and end", call, &c.dry_run},
  };
}

// What is told of it while it goes on, and what it does when something goes wrong.
std::vector<RunOption> watching_options(RunConfig& c) {
  using enum OptionUse;
  const std::string watching = "Watching", trust = "Trust";
  return {
      {"test-every", watching, "evaluate after every so many epochs and the last; 0: never", changeable, &c.test_every},
      {"log-every", watching, "print the loss every N steps, and keep it in metrics.jsonl; 0: no", changeable,
       &c.log_every},
      {"digest-every", watching, "record digests of weights, gradients and optimizer every so many steps", changeable,
       &c.digest_every},
      {"sample-log", watching,
       "file that gets each step's samples, part by part, a JSON line a step; begun anew unless resumed", output,
       &c.sample_log},
      {"progress", watching,
       "on stderr: a bar (auto: on a terminal; always), else a line every 30 s at the latest; or never", output,
       &c.progress},
      {"quiet", watching, "results only: no banner, no notes", output, &c.quiet},
      {"trace", watching,
       "file that gets what every rank did when, a few KB a step and rank, for Perfetto or chrome://tracing", output,
       &c.trace},
      {"stall-timeout", trust, "seconds without progress after which the job names who is late, and ends with 86",
       changeable, &c.stall_timeout},
      {"watch-interface", trust, "network interface that hosts tell each other by where their ranks are; none: chosen",
       output, &c.watch_interface},
      {"verify-replicas", trust,
       "compare all ranks' state every so many steps, the optimizer's not with sharded or central: it has one owner",
       changeable, &c.verify_replicas},
      {"on-divergence", trust, "stop with 87; --resume then continues from the newest checkpoint, which was equal",
       changeable, &c.on_divergence},
      {"on-nonfinite", trust, "when a loss or gradient is NaN or infinite: stop with 88, or skip the step", changeable,
       &c.on_nonfinite},
      {"allow-mixed-processors", trust,
       "compute, with --exchange exact, on processors of other instructions, which change the bits", changeable,
       &c.allow_mixed_processors},
      {"rehearse", trust, "a fault to have on purpose, as kill:rank=2,step=17; see the README", call, &c.rehearse},
  };
}

// What is left to the program was chosen when the run began.
bool contradicts(const std::string& asked, const std::string& chosen) {
  return asked != chosen && (asked != "\"auto\"" || chosen == "\"none\"");
}

}  // namespace

std::vector<RunOption> run_options(RunConfig& config) {
  std::vector<RunOption> options = training_options(config);
  for (const auto& more : {running_options, watching_options}) {
    for (RunOption& option : more(config)) options.push_back(std::move(option));
  }
  return options;
}

std::string value_text(const RunOption& option) { return std::visit(ValueText{}, option.target); }

std::string config_text(RunConfig config) {
  std::string text;
  for (const RunOption& option : run_options(config)) {
    if (option.use != OptionUse::call) text += fmt::format("{} = {}\n", option.name, value_text(option));
  }
  return text;
}

std::vector<std::string> chosen_options(const std::string& configuration) {
  const auto lines_of = [](const std::string& text) {
    std::vector<std::string> lines;
    std::istringstream stream(text);
    for (std::string line; std::getline(stream, line);) lines.push_back(line);
    return lines;
  };
  const std::vector<std::string> defaults = lines_of(config_text({}));
  std::vector<std::string> chosen = lines_of(configuration);
  std::erase_if(chosen, [&](const std::string& option) {
    return std::ranges::count(defaults, option) > 0 || !moved_to(option.substr(0, option.find(' '))).empty();
  });
  return chosen;
}

void fit_defaults(RunConfig& config, const std::set<std::string>& given) {
  if (config.optimizer == "adamw" && !given.contains("momentum")) config.momentum = 0;
}

void read_stored_config(const std::string& text, const std::string& checkpoint, RunConfig& config,
                        std::set<std::string>& given) {
  read_config_text(text, checkpoint, config, given);
  if (!given.contains("exif")) config.exif = "off";  // when it was made, images were taken as they are stored
  if (config.on_divergence == "heal") config.on_divergence = "stop";
}

RunConfig merge_for_resume(const RunConfig& asked, const std::set<std::string>& given,
                           const std::string& checkpoint_config, const std::string& checkpoint_path) {
  RunConfig from_checkpoint;
  std::set<std::string> read;
  read_stored_config(checkpoint_config, checkpoint_path, from_checkpoint, read);
  RunConfig merged = asked;
  const auto sources = run_options(from_checkpoint);
  const auto targets = run_options(merged);
  for (std::size_t i = 0; i < targets.size(); ++i) {
    if (targets[i].use == OptionUse::call || targets[i].use == OptionUse::output) continue;
    const bool asked_for = given.contains(targets[i].name);
    if (asked_for && targets[i].use != OptionUse::fixed) continue;
    if (asked_for && contradicts(value_text(targets[i]), value_text(sources[i]))) {
      throw Error(ErrorSource::input,
                  fmt::format("--{} {} contradicts the checkpoint {}, which has {}: leave the option out, or begin "
                              "another run with these weights: --init-from {} and another --out",
                              targets[i].name, value_text(targets[i]), checkpoint_path, value_text(sources[i]),
                              checkpoint_path));
    }
    std::visit([&](auto* target) { *target = *std::get<std::decay_t<decltype(target)>>(sources[i].target); },
               targets[i].target);
  }
  // Before there was --schedule-epochs, --steps ended a cosine schedule, too: a run begun so keeps its bits.
  const bool is_older = !read.contains("schedule-epochs") && !given.contains("schedule-epochs");
  if (is_older && merged.schedule == "cosine" && from_checkpoint.steps > 0) merged.schedule_epochs = kScheduleOfLaunch;
  return merged;
}

}  // namespace tutti
