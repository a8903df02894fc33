#include "resolve_options.hpp"

#include "tutti/base/error.hpp"
#include "tutti/data/part_plan.hpp"

#include "plural.hpp"

#include <fmt/format.h>

#include <array>
#include <utility>

namespace tutti {
namespace {

OptimizerOptions optimizer_options(const RunConfig& config) {
  return {.kind = config.optimizer,
          .momentum = config.momentum,
          .weight_decay = config.weight_decay,
          .nesterov = config.nesterov,
          .exempts_norms_and_biases = config.exempts_norms_and_biases,
          .clip_norm = config.clip_norm,
          .beta1 = config.adam_beta1,
          .beta2 = config.adam_beta2,
          .epsilon = config.adam_epsilon};
}

LrPlan lr_plan(const RunConfig& config) {
  return {.schedule = config.schedule,
          .base = config.lr,
          .period_epochs = *config.lr_period,
          .decay = config.lr_decay,
          .warmup_epochs = config.warmup_epochs,
          .least = config.min_lr};
}

void refuse_part_map(const RunConfig& config, int ranks) {
  const PartMapOptions& map = *config.part_map;
  PartPlan::chosen(map.parts_by_rank, static_cast<int>(config.parts), ranks);
  if (!map.measured || config.exchange == Exchange::exact) return;
  throw Error(
      ErrorSource::usage,
      fmt::format("--part-map auto moves parts between ranks as it trains, and only --exchange exact gives the same "
                  "bits then, not {}: add --exchange exact, or deal the parts by hand, as --part-map 3,3,2",
                  name_of(*config.exchange)));
}

}  // namespace

void refuse_contradictions(const RunConfig& config) {
  if (config.optimizer == OptimizerKind::adamw && config.momentum != 0) {
    throw Error(ErrorSource::usage,
                fmt::format("--momentum {} belongs to sgd and lars; adamw keeps moments of its own: leave it out",
                            config.momentum));
  }
  validate(optimizer_options(config));
  validate(lr_plan(config));
}

void settle_parts(RunConfig& config, int ranks, int fair_threads) {
  const bool parts_chosen = config.parts != 0;
  if (!parts_chosen) config.parts = ranks;
  if (config.threads == 0) config.threads = parts_chosen ? 1 : fair_threads;
  if (!config.exchange) config.exchange = parts_chosen ? Exchange::exact : Exchange::ring;
  if (config.shard_optimizer && (config.exchange == Exchange::ring || config.exchange == Exchange::central)) {
    throw Error(ErrorSource::usage,
                fmt::format("--shard-optimizer does not go with --exchange {}, where {} all weights: use --exchange "
                            "exact, or sharded, which needs no --shard-optimizer",
                            name_of(*config.exchange),
                            config.exchange == Exchange::ring ? "every rank updates" : "rank 0 updates"));
  }
  if (ranks > config.parts) {
    const char* const more = config.resume ? "start a new run with --parts N to resume on up to N"
                                           : "give --parts N to use up to N, or start fewer ranks";
    throw Error(ErrorSource::usage,
                fmt::format("{} ranks cannot share {}: this run has {}, so it can use at most {}; {}", ranks,
                            plural(config.parts, "part"), config.parts, plural(config.parts, "rank"), more));
  }
  refuse_part_map(config, ranks);
}

TrainerOptions resolve_options(const RunConfig& config, const NetworkSpec& model) {
  const CheckpointInterval interval = config.out.empty() ? CheckpointInterval{} : *config.checkpoint_every;
  TrainerOptions options{.batch_size = config.batch_size,
                         .num_parts = static_cast<int>(config.parts),
                         .exchange = {config.exchange.value(), config.shard_optimizer},
                         .threads = static_cast<int>(config.threads),
                         .last_batch = config.last_batch,
                         .shuffle = config.shuffle,
                         .seed = static_cast<std::uint64_t>(config.seed),
                         .initializer = config.init.value_or(model.initializer),
                         .epochs = config.epochs,
                         .steps = config.steps,
                         .schedule_epochs = config.schedule_epochs,
                         .optimizer = optimizer_options(config),
                         .label_smoothing = config.label_smoothing,
                         .learning_rate = lr_plan(config),
                         .bucket_bytes = static_cast<std::size_t>(config.bucket_mib * 1024 * 1024),
                         .steps_ahead = static_cast<int>(config.in_flight),
                         .test_every_epochs = config.test_every,
                         .log_every_steps = config.log_every,
                         .digest_every_steps = config.digest_every,
                         .checkpoint_every_steps = interval.steps,
                         .checkpoint_every_epochs = interval.epochs,
                         .checkpoint_at_end = !config.out.empty(),
                         .checkpoint_at_best = config.keep_best};
  options.part_map = *config.part_map;
  options.safeguards = {.verify_every_steps = config.verify_replicas, .on_not_finite = config.on_nonfinite};
  return options;
}

void refuse_without_out(const RunConfig& config) {
  if (!config.out.empty()) return;
  const std::array<std::pair<const char*, bool>, 4> wanting{
      {{"resume", config.resume},
       {"checkpoint-every", !config.checkpoint_every.text().empty()},
       {"keep-best", config.keep_best},
       {"time-limit", !config.time_limit.text().empty()}}};
  for (const auto& [option, is_given] : wanting) {
    if (!is_given) continue;
    throw Error(ErrorSource::usage, fmt::format("--{} wants --out, the folder of the run's checkpoints", option));
  }
}

std::string drop_stored_part_map(RunConfig& config, const std::set<std::string>& given, int ranks) {
  const auto listed = std::ssize(config.part_map->parts_by_rank);
  if (listed == 0 || listed == ranks || given.contains("part-map")) return {};
  return fmt::format("the checkpoint's --part-map {} is for {} ranks, not {}: parts are spread evenly now",
                     std::exchange(config.part_map, "even").text(), listed, ranks);
}

}  // namespace tutti
