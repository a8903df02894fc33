#include "resolve_options.hpp"

#include "tutti/base/error.hpp"
#include "tutti/watch/rehearsal.hpp"

#include "option_choices.hpp"
#include "plural.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <optional>
#include <string_view>
#include <utility>

namespace tutti {
namespace {

constexpr int kMostParts = 65536;
constexpr double kLongestSeconds = 1e9;
constexpr double kSecondsBetweenCheckpoints = 900;

void refuse_other_than_choices(const char* option, const std::string& word) {
  const auto choices = choices_of(option);
  if (std::ranges::find(choices, word) != choices.end()) return;
  throw Error(ErrorSource::usage, fmt::format("--{} {}: must be one of {}", option, word, fmt::join(choices, ", ")));
}

void refuse_healing(const std::string& on_divergence) {
  if (on_divergence != "heal") return;
  throw Error(ErrorSource::usage,
              "--on-divergence heal no longer exists: leave it out. A run whose replicas differ ends with 87, and "
              "--resume continues it from its newest checkpoint, to the same bits; the scripts in jobs/ do so by "
              "themselves");
}

void refuse_outside(const char* option, std::int64_t value, std::int64_t low, std::int64_t high) {
  if (value >= low && value <= high) return;
  throw Error(ErrorSource::usage, fmt::format("--{} {}: must be {} to {}", option, value, low, high));
}

// Reads a number from the front of `text`; empty when there is none.
template <class Number>
std::optional<Number> take_number(std::string_view& text) {
  Number number{};
  const auto [rest, status] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (status != std::errc{}) return std::nullopt;
  text.remove_prefix(static_cast<std::size_t>(rest - text.data()));
  return number;
}

// "1h30m", units from the longest to the shortest; or seconds without one.
std::optional<std::int64_t> seconds_by_units(std::string_view text) {
  constexpr std::string_view kUnits = "dhms";
  constexpr std::array<std::int64_t, 4> kSeconds{86400, 3600, 60, 1};
  std::int64_t seconds = 0;
  for (std::size_t next = 0; !text.empty();) {
    const auto count = take_number<std::uint32_t>(text);
    const bool is_bare = text.empty() && next == 0;
    const std::size_t unit = is_bare ? kUnits.size() - 1 : text.empty() ? kUnits.npos : kUnits.find(text.front());
    if (!count || unit == kUnits.npos || unit < next) return std::nullopt;
    seconds += *count * kSeconds[unit];
    next = unit + 1;
    if (!is_bare) text.remove_prefix(1);
  }
  return seconds;
}

// "HH:MM:SS" or "D-HH:MM:SS"
std::optional<std::int64_t> seconds_by_clock(std::string_view text) {
  std::int64_t days = 0;
  if (const auto dash = text.find('-'); dash != text.npos) {
    const auto count = take_number<std::uint32_t>(text);
    if (!count || !text.starts_with('-')) return std::nullopt;
    text.remove_prefix(1);
    days = *count;
  }
  std::int64_t seconds = 0;
  for (int colons = 0; colons < 3; ++colons) {
    if (colons > 0 && !text.starts_with(':')) return std::nullopt;
    if (colons > 0) text.remove_prefix(1);
    const auto count = take_number<std::uint32_t>(text);
    if (!count || (colons > 0 && *count >= 60)) return std::nullopt;
    seconds = 60 * seconds + *count;
  }
  if (!text.empty()) return std::nullopt;
  return 86400 * days + seconds;
}

}  // namespace

void refuse_unknown_words(const RunConfig& config) {
  refuse_other_than_choices("device", config.device);
  parse_precision(config.precision);
  refuse_other_than_choices("exif", config.exif);
  refuse_other_than_choices("tiled-convolutions", config.tiled_convolutions);
  refuse_other_than_choices("optimizer", config.optimizer);
  refuse_other_than_choices("no-decay", config.no_decay);
  if (config.exchange != "auto") parse_exchange(config.exchange);
  refuse_other_than_choices("comm", config.comm);
  refuse_other_than_choices("search-plans", config.search_plans);
  refuse_other_than_choices("record-steps", config.record_steps);
  refuse_other_than_choices("progress", config.progress);
  refuse_other_than_choices("init", config.init);
  parse_last_batch(config.last_batch);
  parse_augment(config.augment);
  parse_shuffle(config.shuffle);
  parse_schedule(config.schedule);
  parse_part_map(config.part_map);
  refuse_healing(config.on_divergence);
  refuse_other_than_choices("on-divergence", config.on_divergence);
  parse_on_not_finite(config.on_nonfinite);
  check_rehearsal(config.rehearse);
  parse_checkpoint_every(config.checkpoint_every);
  parse_time_limit(config.time_limit);
  if (!config.lr_period.empty()) parse_lr_period(config.lr_period);
  if (config.optimizer == "adamw" && config.momentum != 0) {
    throw Error(ErrorSource::usage,
                fmt::format("--momentum {} belongs to sgd and lars; adamw keeps moments of its own: leave it out",
                            config.momentum));
  }
  if (!(config.label_smoothing >= 0 && config.label_smoothing < 1)) {
    throw Error(ErrorSource::usage,
                fmt::format("--label-smoothing {}: must be at least 0 and below 1", config.label_smoothing));
  }
  constexpr std::int64_t kMany = 1'000'000'000;
  refuse_outside("batch-size", config.batch_size, 1, kMany);
  refuse_outside("image-size", config.image_size, 0, 65536);
  refuse_outside("resident-mib", config.resident_mib, 0, kMany);
  refuse_outside("epochs", config.epochs, 1, 1'000'000);
  refuse_outside("steps", config.steps, 0, kMany);
  if (config.schedule_epochs != kScheduleOfLaunch) {
    refuse_outside("schedule-epochs", config.schedule_epochs, 0, 1'000'000);
  }
  refuse_outside("parts", config.parts, 0, kMostParts);
  refuse_outside("threads", config.threads, 0, 4096);
  refuse_outside("in-flight", config.in_flight, 0, 2);
  refuse_outside("test-every", config.test_every, 0, kMany);
  refuse_outside("log-every", config.log_every, 0, kMany);
  refuse_outside("digest-every", config.digest_every, 0, kMany);
  refuse_outside("verify-replicas", config.verify_replicas, 0, kMany);
  if (config.keep_checkpoints != 0) refuse_outside("keep-checkpoints", config.keep_checkpoints, 2, kMany);
  if (!(config.bucket_mib >= 0 && config.bucket_mib <= 4096)) {
    throw Error(ErrorSource::usage, fmt::format("--bucket-mib {}: must be 0 to 4096", config.bucket_mib));
  }
}

TrainerOptions resolve_options(const RunConfig& config, const NetworkSpec& model) {
  const CheckpointInterval interval =
      config.out.empty() ? CheckpointInterval{} : parse_checkpoint_every(config.checkpoint_every);
  TrainerOptions options{.batch_size = config.batch_size,
                         .num_parts = static_cast<int>(config.parts),
                         .exchange = {parse_exchange(config.exchange), config.shard_optimizer},
                         .threads = static_cast<int>(config.threads),
                         .last_batch = parse_last_batch(config.last_batch),
                         .shuffle = parse_shuffle(config.shuffle),
                         .seed = static_cast<std::uint64_t>(config.seed),
                         .initializer = config.init == "model" ? model.initializer : parse_initializer(config.init),
                         .epochs = config.epochs,
                         .steps = config.steps,
                         .schedule_epochs = config.schedule_epochs,
                         .optimizer = {.kind = config.optimizer,
                                       .momentum = config.momentum,
                                       .weight_decay = config.weight_decay,
                                       .nesterov = config.nesterov,
                                       .spares_norms_and_biases = config.no_decay == "norms-biases",
                                       .clip_norm = config.clip_norm,
                                       .beta1 = config.adam_beta1,
                                       .beta2 = config.adam_beta2,
                                       .epsilon = config.adam_epsilon},
                         .label_smoothing = config.label_smoothing,
                         .learning_rate = {.schedule = parse_schedule(config.schedule),
                                           .base = config.lr,
                                           .period_epochs = parse_lr_period(config.lr_period),
                                           .decay = config.lr_decay,
                                           .warmup_epochs = config.warmup_epochs,
                                           .least = config.min_lr},
                         .bucket_bytes = static_cast<std::size_t>(config.bucket_mib * 1024 * 1024),
                         .steps_ahead = static_cast<int>(config.in_flight),
                         .test_every_epochs = config.test_every,
                         .log_every_steps = config.log_every,
                         .digest_every_steps = config.digest_every,
                         .checkpoint_every_steps = interval.steps,
                         .checkpoint_every_epochs = interval.epochs,
                         .checkpoint_at_end = !config.out.empty(),
                         .checkpoint_at_best = config.keep_best};
  options.part_map = parse_part_map(config.part_map);
  options.safeguards = {.verify_every_steps = config.verify_replicas,
                        .on_not_finite = parse_on_not_finite(config.on_nonfinite)};
  require_sensible(options.optimizer);
  require_sensible(options.learning_rate);
  return options;
}

void refuse_without_out(const RunConfig& config) {
  if (!config.out.empty()) return;
  const std::array<std::pair<const char*, bool>, 4> wanting{{{"resume", config.resume},
                                                             {"checkpoint-every", !config.checkpoint_every.empty()},
                                                             {"keep-best", config.keep_best},
                                                             {"time-limit", !config.time_limit.empty()}}};
  for (const auto& [option, is_given] : wanting) {
    if (!is_given) continue;
    throw Error(ErrorSource::usage, fmt::format("--{} wants --out, the folder of the run's checkpoints", option));
  }
}

CheckpointInterval parse_checkpoint_every(const std::string& text) {
  if (text.empty()) return {.epochs = 1, .seconds = kSecondsBetweenCheckpoints};
  if (text == "end") return {};
  std::string_view unit = text;
  const auto count = take_number<std::int64_t>(unit);
  if (count && *count >= 1 && (unit.empty() || unit == "steps")) return {.steps = *count};
  if (count && *count >= 1 && unit == "epochs") return {.epochs = *count};
  std::string_view rest = text;
  const auto seconds = take_number<double>(rest);
  if (seconds && rest == "s" && *seconds > 0 && *seconds <= kLongestSeconds) return {.seconds = *seconds};
  throw Error(ErrorSource::usage,
              fmt::format("--checkpoint-every {}: give a number of steps (500, 500steps), epochs (1epochs) or seconds "
                          "(600s), or end for the last state alone",
                          text));
}

std::string checkpoint_every_text(const CheckpointInterval& interval) {
  const std::string seconds = fmt::format("{} {}", interval.seconds < 60 ? interval.seconds : interval.seconds / 60,
                                          interval.seconds < 60 ? "seconds" : "minutes");
  if (interval.epochs > 0 && interval.seconds > 0) {
    return fmt::format("each epoch, or every {} where an epoch takes longer", seconds);
  }
  if (interval.epochs > 0) return fmt::format("every {} and at the end", plural(interval.epochs, "epoch"));
  if (interval.steps > 0) return fmt::format("every {} and at the end", plural(interval.steps, "step"));
  return interval.seconds > 0 ? fmt::format("every {} and at the end", seconds) : "at the end alone";
}

double parse_time_limit(const std::string& text) {
  if (text.empty()) return 0;
  const auto seconds = text.find(':') == text.npos ? seconds_by_units(text) : seconds_by_clock(text);
  if (seconds && *seconds > 0 && static_cast<double>(*seconds) <= kLongestSeconds) return static_cast<double>(*seconds);
  throw Error(ErrorSource::usage,
              fmt::format("--time-limit {}: give seconds (3600), or as 90m, 1h30m, 12:00:00 or 1-12:00:00", text));
}

PartMapOptions parse_part_map(const std::string& text) {
  if (text == "auto") return {.measured = true};
  PartMapOptions map;
  const char* at = text.data();
  const char* const end = at + text.size();
  int parts_left = kMostParts;
  while (text != "even") {
    int count = 0;
    const auto [rest, status] = std::from_chars(at, end, count);
    if (status != std::errc{} || count < 1 || count > parts_left || (rest != end && *rest != ',')) {
      throw Error(ErrorSource::usage,
                  fmt::format("--part-map {}: give even, auto or each rank's number of parts, as 3,3,2, {} in all at "
                              "most",
                              text, kMostParts));
    }
    parts_left -= count;
    map.parts_by_rank.push_back(count);
    if (rest == end) break;
    at = rest + 1;
  }
  return map;
}

std::string drop_stored_part_map(RunConfig& config, const std::set<std::string>& given, int ranks) {
  const auto listed = std::ssize(parse_part_map(config.part_map).parts_by_rank);
  if (listed == 0 || listed == ranks || given.contains("part-map")) return {};
  return fmt::format("the checkpoint's --part-map {} is for {} ranks, not {}: parts are spread evenly now",
                     std::exchange(config.part_map, "even"), listed, ranks);
}

std::vector<int> parse_rank_counts(const std::string& text, int all) { return parse_counts("ranks", text, all); }

std::vector<int> parse_counts(std::string_view option, const std::string& text, int all) {
  std::vector<int> counts;
  if (text.empty()) {
    for (int count = 1; count < all; count *= 2) counts.push_back(count);
    counts.push_back(all);
    return counts;
  }
  const char* at = text.data();
  const char* const end = at + text.size();
  while (true) {
    int count = 0;
    const auto [rest, status] = std::from_chars(at, end, count);
    const bool ascending = counts.empty() || count > counts.back();
    if (status != std::errc{} || count < 1 || count > all || !ascending || (rest != end && *rest != ',')) {
      throw Error(ErrorSource::usage,
                  fmt::format("--{} {}: give ascending counts of 1 to {}, as 1,2,4", option, text, all));
    }
    counts.push_back(count);
    if (rest == end) return counts;
    at = rest + 1;
  }
}

}  // namespace tutti
