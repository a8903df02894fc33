#include "option_table.hpp"

#include "tutti/base/error.hpp"
#include "tutti/train/trainer.hpp"
#include "tutti/watch/fault_spec.hpp"

#include "option_errors.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstdint>
#include <stdexcept>
#include <utility>

namespace tutti {
namespace {

constexpr std::int64_t kMany = 1'000'000'000;
constexpr std::int64_t kMillion = 1'000'000;

// Images and data files are read whole.
OptionValue verification(DataRequest& data) {
  return flag({[&data] { return data.verification == Verification::whole; },
               [&data](bool whole) {
                 data.verification = whole ? Verification::whole : Verification::start;
                 data.data_file_check = whole ? DataFileCheck::all : DataFileCheck::none;
               }});
}

OptionValue mebibytes(std::size_t& bytes) {
  const Access<std::int64_t> in_mebibytes([&bytes] { return static_cast<std::int64_t>(bytes >> 20); },
                                          [&bytes](std::int64_t mib) { bytes = static_cast<std::size_t>(mib) << 20; });
  return whole(in_mebibytes, 0, kMany);
}

// Decides which samples are held out, how images are augmented, and how the network is trained.
OptionValue seed(RunConfig& c) {
  const auto set = [&c](std::int64_t seed) {
    c.data.seed = c.recipe.seed = c.trainer.seed = static_cast<std::uint64_t>(seed);
  };
  return whole(Access<std::int64_t>([&c] { return static_cast<std::int64_t>(c.trainer.seed); }, set));
}

std::vector<Option> data_options(RunConfig& c) {
  using enum OptionUse;
  const std::string data = "Data";
  return {
      {"data", data, "glyphs, synthetic:NxCxHxW:classes, a folder, an HDF5 file, or a name to look up", data_source,
       kScoring | kComputing | kTour, text(c.data.train)},
      {"test-data", data, "folder of the test set, if it is separate", data_source, kScoring | kBatching | kDescribing,
       text(c.data.test)},
      {"class-depth", data, "levels of folders that name a class: 1 for dog/1.jpg, 2 for animals/dog/1.jpg",
       data_source, kScoring | kBatching | kDescribing, whole(c.data.class_depth, 1, 16)},
      {"validation-ratio", data, "fraction of the training set to hold out as the test set", fixed,
       kBatching | kDescribing, real(c.data.validation_ratio)},
      {"validation-split", data,
       "how --validation-ratio chooses: stratified (the same fraction of every class) or random", fixed,
       kBatching | kDescribing, one_of(c.data.split)},
      {"validation-groups", data,
       "hold out whole groups (patients, cameras): a CSV table of images and groups, FILE or FILE:COLUMN", data_source,
       kScoring | kBatching | kDescribing, text(c.data.validation_groups)},
      {"skip-bad-images", data, "leave out images that cannot be decoded, and count them", fixed,
       kScoring | kBatching | kDescribing, flag(c.data.skip_bad_images)},
      {"verify-data", data,
       "read all data before the start: decode every image, compare contents with the checkpoint's", per_start,
       kTour | kDataShow, verification(c.data)},
      {"resident-mib", data, "read HDF5 data sets above this size lazily; 0: a quarter of the host's memory",
       data_source, kScoring | kBatching | kDescribing, mebibytes(c.data.most_resident_bytes)},
      {"exif", data, "apply the EXIF orientation of JPEG images: on or off", fixed, kBatching | kDescribing | kPredict,
       on_or_off(c.data.applies_exif)},
      {"image-size", data, "resize and center-crop to N x N; 0: keep the size", fixed, kBatching | kDataConvert,
       whole(c.recipe.image_size, 0, 65536)},
      {"augment", data,
       "augmentation of training images: none, or some of crop-flip, pad-crop-flip, resized-crop or shift:N (reflected "
       "edges); flip or alternate-flip; vertical-flip; rotate:DEGREES; jitter:BRIGHTNESS/CONTRAST/SATURATION/HUE; "
       "scaled-decode; trivial or randaugment:N/MAGNITUDE; erase:P; mixup:A; cutmix:A, separated by commas",
       fixed, kBatching, parsed(c.texts.augment, c.recipe.augment, parse_augment)},
      {"normalize", data, "none, auto (training set mean/std) or MEAN/STD, in units of pixel / 255", fixed, kBatching,
       text(c.recipe.normalize)},
      {"last-batch", data, "the last samples of an epoch if they do not fill a batch: keep, discard or rollover", fixed,
       kBatching, one_of(c.trainer.last_batch)},
      {"shuffle", data,
       "global (all samples, every epoch), partition (within the block of each part), none, or balanced (samples of "
       "all classes equally often, with replacement)",
       fixed, kBatching, one_of(c.trainer.shuffle)},
  };
}

std::vector<Option> training_options(RunConfig& c) {
  using enum OptionUse;
  const std::string network = "Network", training = "Training";
  return {
      {"model", network, "lenet, resnet18, resnet34, resnet50, vgg11, mlp and others, or the path of a model file",
       fixed, kComputing | kTour, text(c.model)},
      {"init-from", network,
       "start from the weights (and, without --model, the network) of a run, RUN@best, RUN@STEP, checkpoint, or "
       ".pth or .safetensors file of torchvision",
       fixed, kTraining, text(c.init_from)},
      {"new-head", network,
       "with --init-from, newly initialize the last layer, even if the weights were trained on as many classes", fixed,
       kTraining, flag(c.new_head)},
      {"init", network, "initial weights: model (its own), normal, xavier, kaiming or uniform", fixed,
       kComputing | kTour, one_of("model", c.init)},
      {"epochs", training, "passes over the training set", replayed, kTour, whole(c.trainer.epochs, 1, kMillion)},
      {"steps", training, "stop after N steps of the --epochs schedule; 0: after all epochs", changeable, kTour,
       whole(c.trainer.steps, 0, kMany)},
      {"batch-norm", training,
       "batch norm in training: part (with each part's statistics) or global (with those of the whole batch)", fixed,
       kUpdating, one_of(c.trainer.batch_norm)},
      {"batch-size", training, "global batch size: samples per step over all ranks", fixed, kBatching,
       whole(c.trainer.batch_size, 1, kMany)},
      {"label-smoothing", training, "label smoothing of the training loss", fixed, kUpdating,
       number<double>(
           c.trainer.label_smoothing, [](double v) { return v >= 0 && v < 1; }, "at least 0 and below 1")},
      {"class-weights", training,
       "class weights in the training loss: none, auto (inverse to the class sizes) or one number per class", fixed,
       kUpdating, text(c.class_weights)},
  };
}

// The optimizer, and the learning rate over time.
std::vector<Option> optimizer_options(RunConfig& c) {
  using enum OptionUse;
  const std::string training = "Training";
  return {
      {"lr", training, "learning rate", fixed, kUpdating | kTour, real(c.trainer.learning_rate.base)},
      {"optimizer", training, "optimizer: sgd, adamw or lars", fixed, kUpdating, one_of(c.trainer.optimizer.kind)},
      {"momentum", training, "momentum (sgd, lars)", fixed, kUpdating, real(c.trainer.optimizer.momentum)},
      {"nesterov", training, "Nesterov momentum (sgd)", fixed, kUpdating, flag(c.trainer.optimizer.nesterov)},
      {"weight-decay", training, "L2 coefficient (sgd, lars); decoupled decay (adamw)", fixed, kUpdating,
       real(c.trainer.optimizer.weight_decay)},
      {"adam-beta1", training, "decay of the running mean of the gradients (adamw)", fixed, kUpdating,
       real(c.trainer.optimizer.beta1)},
      {"adam-beta2", training, "decay of the running mean of the squared gradients (adamw)", fixed, kUpdating,
       real(c.trainer.optimizer.beta2)},
      {"adam-epsilon", training, "added to the denominator (adamw)", fixed, kUpdating,
       real(c.trainer.optimizer.epsilon)},
      {"no-decay", training, "parameters exempt from weight decay and LARS scaling: none or norms-biases", fixed,
       kUpdating, flag_words("none", "norms-biases", c.trainer.optimizer.exempts_norms_and_biases)},
      {"lr-factors", training,
       "factors of the learning rate by parameter or layer (*/bias=2,head=10), or from an epoch on (conv1@3=0)", fixed,
       kUpdating, parsed(c.texts.lr_factors, c.trainer.optimizer.lr_factors, parse_lr_factors)},
      {"decay-factors", training, "factors of the weight decay by parameter or layer (*/bias=0.5)", fixed, kUpdating,
       parsed(c.texts.decay_factors, c.trainer.optimizer.decay_factors, parse_decay_factors)},
      {"freeze", training, "layers that are not trained (stem*,stage1*); their batch norms use the running statistics",
       fixed, kUpdating, text(c.freeze)},
      {"ema", training, "decay per step of an average of the weights, which is evaluated and kept; 0: none", fixed,
       kUpdating, real(c.trainer.average.decay)},
      {"lookahead", training,
       "average the weights every N steps, with a decay that grows to that of --ema, and continue from the average; "
       "0: off",
       fixed, kUpdating, whole(c.trainer.average.lookahead, 0, kMillion)},
      {"clip-norm", training, "clip the global gradient norm; 0: off", fixed, kUpdating,
       real(c.trainer.optimizer.clip_norm)},
      {"schedule", training, "learning rate schedule: constant, step, cosine or linear", fixed, kUpdating,
       one_of(c.trainer.learning_rate.schedule)},
      {"schedule-epochs", training,
       "length of the cosine or linear schedule, for a run that will be extended later; 0: --epochs", replayed,
       kTraining, whole(c.trainer.schedule_epochs, 0, kMillion, kScheduleOfInvocation)},
      {"lr-period", training, "step schedule: drop every N epochs (10) or at these epochs (30,60,80), warm-up included",
       fixed, kUpdating, parsed(c.texts.lr_period, c.trainer.learning_rate.period_epochs, parse_lr_period)},
      {"lr-decay", training, "step schedule: factor per drop", fixed, kUpdating, real(c.trainer.learning_rate.decay)},
      {"min-lr", training, "minimum learning rate of a schedule", fixed, kUpdating, real(c.trainer.learning_rate.min)},
      {"warmup-epochs", training, "epochs of linear learning rate warm-up; 0: off", fixed, kUpdating,
       real(c.trainer.learning_rate.warmup_epochs)},
      {"warmup-lr", training, "learning rate from which the warm-up rises", fixed, kUpdating,
       real(c.trainer.learning_rate.warmup_start)},
      {"seed", training, "random seed", fixed, kBatching | kDescribing, seed(c)},
  };
}

std::vector<Option> running_options(RunConfig& c) {
  using enum OptionUse;
  const std::string ranks = "Ranks and devices";
  return {
      {"parts", ranks, "number of parts of every batch, fixed for the run; 0: one per rank", fixed,
       kBenchStep | kTour | kDataShow, whole(c.trainer.num_parts, 0, kMaxParts)},
      {"part-map", ranks,
       "parts of each rank: even, auto (by measured speed; results are bit-identical) or a list, for example 3,3,2",
       changeable, kBenchStep, parsed(c.texts.part_map, c.trainer.part_map, parse_part_map)},
      {"threads", ranks, "threads per part; 0: 1 with --parts, else an equal share of the node's cores", changeable,
       kComputing | kTour, whole(c.trainer.threads, 0, 4096)},
      {"device", ranks, "device to compute on: auto, cpu or cuda", changeable, kRunning | kScreen,
       one_of(c.processor.device)},
      {"precision", ranks,
       "compute precision: fp32, bf16 or, on GPUs, tf32; auto: tf32 if all ranks use GPUs that support it, else fp32",
       fixed, kComputing | kTour, one_of("auto", c.processor.precision)},
      {"comm", ranks, "communicator: auto, solo (one rank), mpi or, between GPUs, nccl", changeable, kRunning,
       one_of(c.processor.comm)},
      {"exchange", ranks, "gradient all-reduce: ring, exact, sharded or central; auto: exact with --parts, else ring",
       fixed, kBenchStep | kBenchScaling, one_of("auto", c.exchange)},
      {"shard-optimizer", ranks,
       "shard the optimizer state over the ranks (ZeRO-1), with --exchange exact; results are bit-identical", replayed,
       kBenchStep | kBenchScaling, flag(c.trainer.exchange.shard_optimizer)},
      {"wire", ranks,
       "type in which gradients are sent: fp32 or, with ring, bf16; with exact, int32 or int64; auto: int32 with exact "
       "and up to 1,024 parts, else int64, and fp32 with other exchanges",
       fixed, kBenchStep | kBenchScaling, one_of("auto", c.trainer.exchange.wire)},
      {"bucket-mib", ranks, "gradient bucket size in MiB; 0: 4 (16 on GPUs)", fixed, kUpdating,
       real(c.bucket_mib, 0, 4096)},
      {"in-flight", ranks, "steps to prefetch, 0 to 2 (on GPUs also steps enqueued ahead); does not change results",
       replayed, kComputing, whole(c.trainer.steps_ahead, 0, 2)},
      {"share-device", ranks, "let ranks share a GPU: slow, for tests", changeable, kRunning,
       flag(c.processor.share_device)},
      {"search-plans", ranks, "on GPUs, autotune cuDNN (as cudnn.benchmark does): on or off", replayed,
       kComputing | kTour, on_or_off(c.processor.gpu.search_plans)},
      {"plan-cache", ranks,
       "where autotuned algorithms are kept for the next start: auto (the user's cache folder), a file, or off",
       changeable, kComputing | kTour, text(c.processor.plan_cache)},
      {"record-steps", ranks, "on GPUs, run steps as CUDA graphs: on or off; results are bit-identical", replayed,
       kComputing, on_or_off(c.processor.gpu.use_graphs)},
  };
}

std::vector<Option> saving_options(RunConfig& c) {
  using enum OptionUse;
  const std::string saving = "Checkpoints and output";
  return {
      {"out", saving, "folder for checkpoints, metrics.jsonl and the resolved options; default: nothing is written",
       per_start, kTraining, text(c.output.folder)},
      {"resume", saving, "continue from the newest checkpoint in --out", unstored, kTraining, flag(c.output.resume)},
      {"checkpoint-every", saving,
       "Nsteps, Nepochs, Ns (seconds) or end; if omitted: every epoch, and every 15 minutes of a longer one; always "
       "at the end",
       changeable, kTraining, parsed(c.texts.checkpoint_every, c.output.checkpoint_every, parse_checkpoint_every)},
      {"keep-checkpoints", saving, "keep the newest N checkpoints, at least 2; 0: all", changeable, kTraining,
       whole(c.output.keep_checkpoints, 2, kMany, 0)},
      {"keep-best", saving, "also save whenever the evaluation improves, and keep the best checkpoint", changeable,
       kTraining, flag(c.trainer.checkpoint_at_best)},
      {"keep-steps", saving,
       "keep the state in the memory of each host every N steps, or auto: as often as takes at most 1 % of the time; "
       "--resume continues from there after ranks were lost; off",
       changeable, kTraining, parsed(c.texts.keep_steps, c.output.keep_steps, parse_keep_steps)},
      {"on-save-failure", saving,
       "if a checkpoint cannot be saved: continue, and try again at the next one, or stop with status 73", changeable,
       kTraining, one_of(c.output.on_save_failure)},
      {"time-limit", saving,
       "save a checkpoint and stop with status 75 before this run time (3600, 90m or 12:00:00) is reached; default: no "
       "limit",
       per_start, kTraining, parsed(c.texts.time_limit, c.output.time_limit, parse_time_limit)},
      {"config", saving, "TOML file keyed by these names; the command line overrides it", unstored, kTraining,
       text(c.config)},
      {"dry-run", saving, "print the resolved options as TOML and exit", unstored, kTraining, flag(c.dry_run)},
  };
}

// Reports during the run, and the reaction to failures.
std::vector<Option> watching_options(RunConfig& c) {
  using enum OptionUse;
  const std::string logging = "Logging", tolerance = "Fault tolerance";
  return {
      {"test-every", logging, "evaluate after every N epochs and the last; 0: never", replayed, kTraining,
       whole(c.trainer.test_every_epochs, 0, kMany)},
      {"views", logging,
       "average the logits over views of a test image: none, flip (adds its mirror image), shifts (also adds images "
       "moved by a pixel)",
       replayed, kScoring, one_of(c.trainer.views)},
      {"stop-at-accuracy", logging, "end the run after the first evaluation with this accuracy; 0: off", changeable,
       kTraining, real(c.trainer.early_stop.accuracy, 0, 1)},
      {"patience", logging, "end the run after N evaluations without a better accuracy; 0: off", changeable, kTraining,
       whole(c.trainer.early_stop.patience, 0, kMillion)},
      {"log-every", logging, "print the loss and write it to metrics.jsonl every N steps; 0: off", replayed, kTraining,
       whole(c.trainer.log_every_steps, 0, kMany)},
      {"digest-every", logging, "record digests of weights, gradients and optimizer state every N steps; 0: off",
       replayed, kTraining, whole(c.trainer.digest_every_steps, 0, kMany)},
      {"sample-log", logging, "write the samples of each part to this file, a JSON line per step; a resume appends",
       per_start, kTraining, text(c.output.sample_log)},
      {"progress", logging,
       "progress bar on stderr: auto (on a terminal; otherwise at least one line every 30 s), always or never",
       per_start, kDataConvert, one_of(c.output.progress)},
      {"quiet", logging, "print results only: no banner, no notes", per_start, kScoring | kDataConvert,
       flag(c.output.quiet)},
      {"trace", logging,
       "write a timeline of all ranks to this file, for Perfetto or chrome://tracing; a few KB per step and rank",
       per_start, kTraining, text(c.output.trace)},
      {"stall-timeout", tolerance,
       "seconds without progress after which the job names the late rank and ends with status 86", replayed, kRunning,
       real(c.watch.timeout_seconds)},
      {"watch-interface", tolerance, "network interface for rank-status messages; default: chosen automatically",
       per_start, kRunning, text(c.watch.interface)},
      {"verify-replicas", tolerance,
       "compare the state of all ranks every N steps (optimizer state only if replicated); 0: off", replayed, kTraining,
       whole(c.trainer.safeguards.verify_every_steps, 0, kMany)},
      {"audit-every", tolerance,
       "with --exchange exact: every N steps, compute a part on another rank, too, and compare the results; 0: off",
       changeable, kTraining, whole(c.trainer.safeguards.audit_every_steps, 0, kMany)},
      {"on-divergence", tolerance, "obsolete: runs always stop with status 87; only stop is accepted, for old scripts",
       changeable, kTraining, one_of(c.on_divergence)},
      {"on-nonfinite", tolerance, "if a loss or gradient is NaN or infinite: stop with status 88, or skip the step",
       replayed, kTraining, one_of(c.trainer.safeguards.on_not_finite)},
      {"allow-mixed-processors", tolerance,
       "with --exchange exact: allow ranks on CPUs and GPUs, or on different GPUs, which change the bits", replayed,
       kTraining, flag(c.allow_mixed_processors)},
      {"rehearse", tolerance, "inject a fault, such as kill:rank=2,step=17; see docs/reliability.md", unstored, kScreen,
       text(c.rehearse, validate_rehearsal)},
  };
}

}  // namespace

Option own_option(std::string name, std::string group, std::string help, OptionValue value) {
  return {.name = std::move(name), .group = std::move(group), .help = std::move(help), .value = std::move(value)};
}

Option operand(std::string name, std::string help, OptionValue value) {
  Option option = own_option(std::move(name), "Operands", std::move(help), std::move(value));
  option.is_operand = option.is_required = true;
  return option;
}

std::vector<Option> run_options(RunConfig& config) {
  std::vector<Option> options = data_options(config);
  for (const auto& more : {training_options, optimizer_options, running_options, saving_options, watching_options}) {
    for (Option& option : more(config)) options.push_back(std::move(option));
  }
  return options;
}

void set_value(const Option& option, const std::string& text) {
  const auto& choices = option.value.choices;
  if (const std::string_view instead = moved_to(fmt::format("{} {}", option.name, text)); !instead.empty()) {
    throw Error(ErrorSource::usage, fmt::format("--{} {} no longer exists: {}", option.name, text, instead));
  }
  try {
    const bool is_choice = choices.empty() || std::ranges::count(choices, text) > 0;
    if (!is_choice) throw std::invalid_argument(fmt::format("one of {}", fmt::join(choices, ", ")));
    option.value.write(text);
  } catch (const std::invalid_argument& valid) {
    throw Error(ErrorSource::usage, fmt::format("--{} {}: must be {}", option.name, text, valid.what()));
  }
}

}  // namespace tutti
