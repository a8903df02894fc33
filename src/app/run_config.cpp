#include "run_config.hpp"

#include "tutti/base/error.hpp"
#include "tutti/base/text.hpp"
#include "tutti/data/part_map.hpp"

#include "output.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <functional>
#include <numeric>
#include <optional>
#include <regex>
#include <string>
#include <system_error>
#include <utility>

namespace tutti {
namespace {

constexpr double kLongestSeconds = 1e9;

// Removes a number from the front of `text`; empty if there is none.
template <class Number>
std::optional<Number> take_number(std::string_view& text) {
  Number number{};
  const auto [rest, status] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (status != std::errc{}) return std::nullopt;
  text.remove_prefix(static_cast<std::size_t>(rest - text.data()));
  return number;
}

// Seconds without a unit, "1h30m", "HH:MM:SS" or "D-HH:MM:SS"; empty for any other text.
std::optional<double> seconds_in(const std::string& text) {
  constexpr std::array<double, 4> kSeconds{86400, 3600, 60, 1};  // of the groups of each pattern
  for (const char* const pattern :
       {R"(()()()(\d{1,10}))", R"((?:(\d{1,10})d)?(?:(\d{1,10})h)?(?:(\d{1,10})m)?(?:(\d{1,10})s)?)",
        R"((?:(\d{1,10})-)?(\d{1,10}):(0{0,8}[0-5]?\d):(0{0,8}[0-5]?\d))"}) {
    std::smatch groups;
    if (!std::regex_match(text, groups, std::regex(pattern))) continue;
    double seconds = 0;
    for (std::size_t i = 0; i < kSeconds.size(); ++i) {
      if (groups[i + 1].length() > 0) seconds += kSeconds[i] * std::stod(groups[i + 1]);
    }
    return seconds;
  }
  return std::nullopt;
}

// "3,3,2": integers of 1 or more; none for any other text.
std::vector<int> parse_positive(const std::string& text) {
  auto numbers = parse_numbers<int>(text);
  if (std::ranges::any_of(numbers, [](int number) { return number < 1; })) numbers.clear();
  return numbers;
}

void refuse_part_map(const RunConfig& config, int ranks) {
  const PartMapOptions& map = config.trainer.part_map;
  PartMap::chosen(map.parts_by_rank, static_cast<int>(config.trainer.num_parts), ranks);
  if (!map.balanced || config.exchange == Exchange::exact) return;
  throw Error(
      ErrorSource::usage,
      fmt::format("--part-map auto moves parts between ranks as it trains, and only --exchange exact gives the same "
                  "bits then, not {}: add --exchange exact, or assign the parts by hand, as --part-map 3,3,2",
                  name_of(*config.exchange)));
}

}  // namespace

CheckpointInterval parse_checkpoint_every(const std::string& text) {
  if (text.empty()) return kEveryEpoch;
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
                          "(600s), or end for the final state only",
                          text));
}

std::string checkpoint_every_text(const CheckpointInterval& interval) {
  const std::string seconds = fmt::format("{} {}", interval.seconds < 60 ? interval.seconds : interval.seconds / 60,
                                          interval.seconds < 60 ? "seconds" : "minutes");
  if (interval.epochs > 0 && interval.seconds > 0) {
    return fmt::format("every epoch, and every {} within longer epochs", seconds);
  }
  if (interval.epochs > 0) return fmt::format("every {} and at the end", plural(interval.epochs, "epoch"));
  if (interval.steps > 0) return fmt::format("every {} and at the end", plural(interval.steps, "step"));
  return interval.seconds > 0 ? fmt::format("every {} and at the end", seconds) : "only at the end";
}

KeepInterval parse_keep_steps(const std::string& text) {
  if (text == "off") return {};
  if (text == "auto") return {.is_automatic = true};
  if (const auto steps = parse_number<std::int64_t>(text); steps && *steps >= 1) return {.steps = *steps};
  throw Error(ErrorSource::usage, fmt::format("--keep-steps {}: give a number of steps, auto or off", text));
}

double parse_time_limit(const std::string& text) {
  if (text.empty()) return 0;
  if (const auto seconds = seconds_in(text); seconds && *seconds > 0 && *seconds <= kLongestSeconds) return *seconds;
  throw Error(ErrorSource::usage,
              fmt::format("--time-limit {}: give seconds (3600), or as 90m, 1h30m, 12:00:00 or 1-12:00:00", text));
}

PartMapOptions parse_part_map(const std::string& text) {
  if (text == "even") return {};
  if (text == "auto") return {.balanced = true};
  const std::vector<int> counts = parse_positive(text);
  if (!counts.empty() && std::accumulate(counts.begin(), counts.end(), std::int64_t{0}) <= kMaxParts) {
    return {.parts_by_rank = counts};
  }
  throw Error(ErrorSource::usage,
              fmt::format("--part-map {}: give even, auto or each rank's number of parts, at most {} in all, for "
                          "example 3,3,2",
                          text, kMaxParts));
}

std::vector<int> parse_counts(std::string_view option, const std::string& text, int all) {
  if (text.empty()) {
    std::vector<int> counts;
    for (int count = 1; count < all; count *= 2) counts.push_back(count);
    counts.push_back(all);
    return counts;
  }
  std::vector<int> counts = parse_positive(text);
  const bool is_ascending = std::ranges::adjacent_find(counts, std::greater_equal<>()) == counts.end();
  if (!counts.empty() && is_ascending && counts.back() <= all) return counts;
  throw Error(ErrorSource::usage,
              fmt::format("--{} {}: give ascending counts of 1 to {}, for example 1,2,4", option, text, all));
}

void refuse_contradictions(const RunConfig& config) {
  if (config.trainer.optimizer.kind == OptimizerKind::adamw && config.trainer.optimizer.momentum != 0) {
    throw Error(ErrorSource::usage,
                fmt::format("--momentum {} is for sgd and lars, and adamw has its own moments: leave it out",
                            config.trainer.optimizer.momentum));
  }
  if (!config.data.validation_groups.empty() && config.data.validation_ratio == 0) {
    throw Error(ErrorSource::usage,
                "--validation-groups says which images are held out together: add --validation-ratio");
  }
  if (config.new_head && config.init_from.empty()) {
    throw Error(ErrorSource::usage, "--new-head is for runs that start from the weights of others: add --init-from");
  }
  validate(config.trainer.optimizer);
  validate(config.trainer.learning_rate);
  validate(config.trainer.average);
}

void resolve_parts(RunConfig& config, int ranks, int fair_threads) {
  const bool parts_chosen = config.trainer.num_parts != 0;
  if (!parts_chosen) config.trainer.num_parts = ranks;
  if (config.trainer.threads == 0) config.trainer.threads = parts_chosen ? 1 : fair_threads;
  if (!config.exchange) config.exchange = parts_chosen ? Exchange::exact : Exchange::ring;
  if (config.trainer.exchange.shard_optimizer &&
      (config.exchange == Exchange::ring || config.exchange == Exchange::central)) {
    throw Error(ErrorSource::usage,
                fmt::format("--shard-optimizer cannot be used with --exchange {}, where {} all weights: use --exchange "
                            "exact, or sharded, which needs no --shard-optimizer",
                            name_of(*config.exchange),
                            config.exchange == Exchange::ring ? "every rank updates" : "rank 0 updates"));
  }
  std::optional<Wire>& wire = config.trainer.exchange.wire;
  if (!wire) wire = default_wire(*config.exchange, config.trainer.num_parts);
  if (!can_send(*config.exchange, *wire)) {
    const bool is_for_exact = can_send(Exchange::exact, *wire);
    throw Error(ErrorSource::usage,
                fmt::format("--wire {} is for --exchange {}, and not for {}: leave --wire out, or add {}",
                            name_of(*wire), is_for_exact ? "exact" : "ring", name_of(*config.exchange),
                            is_for_exact ? "--parts N, which makes it exact, or --exchange exact"
                                         : "--exchange ring, whose bits depend on the number of ranks"));
  }
  if (config.trainer.safeguards.audit_every_steps > 0 && config.exchange != Exchange::exact) {
    throw Error(ErrorSource::usage,
                fmt::format("--audit-every {} compares what parts add to an exact sum, and this run has --exchange {}: "
                            "add --parts N, which makes it exact, or --exchange exact",
                            config.trainer.safeguards.audit_every_steps, name_of(*config.exchange)));
  }
  if (ranks > config.trainer.num_parts) {
    const char* const more = config.output.resume ? "start a new run with --parts N to resume on up to N"
                                                  : "give --parts N to use up to N, or start fewer ranks";
    throw Error(ErrorSource::usage,
                fmt::format("{} ranks cannot share {}: this run has {}, so it can use at most {}; {}", ranks,
                            plural(config.trainer.num_parts, "part"), config.trainer.num_parts,
                            plural(config.trainer.num_parts, "rank"), more));
  }
  refuse_part_map(config, ranks);
}

TrainerOptions resolve_options(const RunConfig& config, const NetworkSpec& model) {
  TrainerOptions options = config.trainer;
  options.exchange.kind = config.exchange.value();
  options.initializer = config.init.value_or(model.initializer);
  options.bucket_bytes = static_cast<std::size_t>(config.bucket_mib * 1024 * 1024);
  options.checkpoint_at_end = !config.output.folder.empty();
  if (!options.checkpoint_at_end) return options;
  options.checkpoint_every_steps = config.output.checkpoint_every.steps;
  options.checkpoint_every_epochs = config.output.checkpoint_every.epochs;
  return options;
}

void refuse_without_out(const RunConfig& config) {
  if (!config.output.folder.empty()) return;
  const std::array<std::pair<const char*, bool>, 6> wanting{
      {{"resume", config.output.resume},
       {"checkpoint-every", !config.texts.checkpoint_every.empty()},
       {"keep-steps", !config.output.keep_steps.is_off()},
       {"keep-best", config.trainer.checkpoint_at_best},
       {"on-save-failure stop", config.output.on_save_failure == OnSaveFailure::stop},
       {"time-limit", !config.texts.time_limit.empty()}}};
  for (const auto& [option, is_given] : wanting) {
    if (!is_given) continue;
    throw Error(ErrorSource::usage, fmt::format("--{} needs --out, the folder of the run's checkpoints", option));
  }
}

std::string drop_stored_part_map(RunConfig& config, int ranks) {
  const auto listed = std::ssize(config.trainer.part_map.parts_by_rank);
  if (listed == 0 || listed == ranks || config.given.contains("part-map")) return {};
  config.trainer.part_map = {};
  return fmt::format("the checkpoint's --part-map {} is for {} ranks, not {}: parts are assigned evenly now",
                     std::exchange(config.texts.part_map, "even"), listed, ranks);
}

}  // namespace tutti
