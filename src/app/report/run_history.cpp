#include "run_history.hpp"

#include "tutti/base/error.hpp"
#include "tutti/storage/folder_lock.hpp"
#include "tutti/storage/whole_file.hpp"

#include "../metrics_lines.hpp"
#include "../option_table.hpp"
#include "../several.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <sys/stat.h>

#include <algorithm>
#include <cmath>
#include <ctime>
#include <filesystem>
#include <set>
#include <string_view>
#include <tuple>

namespace tutti {
namespace {

using Json = nlohmann::ordered_json;

// What is beyond these is no figure of any run.
constexpr double kGreatestFigure = 1e30;
constexpr std::int64_t kGreatestWhole = std::int64_t{1} << 53;

std::optional<double> figure(const Json& record, const char* name) {
  const auto found = record.find(name);
  if (found == record.end() || !found->is_number()) return std::nullopt;
  const auto value = found->get<double>();
  return std::abs(value) <= kGreatestFigure ? std::optional(value) : std::nullopt;
}

std::int64_t whole(const Json& record, const char* name) {
  const auto found = record.find(name);
  if (found == record.end() || !found->is_number_integer()) return 0;
  return std::clamp<std::int64_t>(found->get<std::int64_t>(), 0, kGreatestWhole);
}

std::string words(const Json& value) {
  if (value.is_string()) return value.get<std::string>();
  return value.is_null() ? "-" : value.dump(-1, ' ', false, Json::error_handler_t::replace);
}

std::string words(const Json& record, const char* name) {
  const auto found = record.find(name);
  return found != record.end() ? words(*found) : "";
}

std::string listed(const Json& record, const char* name) {
  const auto found = record.find(name);
  if (found == record.end() || !found->is_array()) return words(record, name);
  std::vector<std::string> items;
  for (const Json& item : *found) items.push_back(words(item));
  return fmt::format("{}", fmt::join(items, ", "));
}

// As a shell would take it.
std::string command_text(const Json& arguments) {
  std::string text;
  for (const Json& argument : arguments) {
    const std::string word = words(argument);
    const bool is_plain = !word.empty() && word.find_first_of(" \t\n'\"\\$&|;<>()*?[]#~`!{}") == std::string::npos;
    text += (text.empty() ? "" : " ") + (is_plain ? word : "'" + word + "'");
  }
  return text;
}

Facts facts_of(const Json& record) {
  Facts facts;
  for (const auto& [name, value] : record.items()) {
    if (name == "event") continue;
    facts.emplace_back(name, name == "command_line" && value.is_array() ? command_text(value) : words(value));
  }
  return facts;
}

EpochRecord epoch_of(const Json& record) {
  return {.epoch = whole(record, "epoch"),
          .train_loss = figure(record, "train_loss"),
          .train_accuracy = figure(record, "train_acc"),
          .test_loss = figure(record, "test_loss"),
          .test_accuracy = figure(record, "test_acc"),
          .seconds = figure(record, "seconds"),
          .images_per_second = figure(record, "images_per_second"),
          .lr = figure(record, "lr"),
          .digest = words(record, "digest")};
}

TimeShares shares_of(const Json& record) {
  TimeShares shares;
  for (std::size_t i = 0; i < kTimeShares; ++i) {
    shares.seconds[i] = std::max(0.0, figure(record, name_of(static_cast<TimeShare>(i))).value_or(0));
  }
  return shares;
}

TimeRecord time_of(const Json& record) {
  TimeRecord time{.epoch = whole(record, "epoch"), .mean = shares_of(record)};
  if (const auto ranks = record.find("ranks"); ranks != record.end() && ranks->is_array()) {
    for (const Json& rank : *ranks) time.ranks.push_back(shares_of(rank));
  }
  if (const auto worst = record.find("worst"); worst != record.end() && worst->is_object()) {
    time.latest = LateRank{.rank = static_cast<int>(whole(*worst, "rank")),
                           .host = words(*worst, "host"),
                           .seconds = figure(*worst, "seconds").value_or(0)};
    time.cause = words(*worst, "phase");
  }
  return time;
}

CheckpointRecord checkpoint_of(const Json& record) {
  return {.file = words(record, "file"),
          .bytes = figure(record, "bytes"),
          .seconds = figure(record, "seconds"),
          .stall_seconds = figure(record, "stall_seconds"),
          .failure = words(record, "failure")};
}

RunEvent divergence_of(const Json& record) {
  const bool heals = record.value("heals", Json(false)) == Json(true);
  return {.step = whole(record, "step"),
          .what = "the replicas were not equal",
          .details = fmt::format(
              "rank {} in {}; {}", listed(record, "ranks"), listed(record, "tensors"),
              heals ? fmt::format("all went back to step {} and played the steps again", words(record, "equal_after"))
                    : std::string("the run ended")),
          .is_bad = true};
}

RunEvent skipped_of(const Json& record) {
  return {.step = whole(record, "step"),
          .what = "the step was left out",
          .details = fmt::format("{} was not finite at rank {}", words(record, "tensor"), words(record, "rank")),
          .is_bad = true};
}

// The steps that were done when the run went on: those of the newest good checkpoint that lies before what comes next.
std::int64_t begun_at(const std::vector<Json>& records, std::size_t place) {
  std::optional<std::int64_t> next;
  for (std::size_t i = place + 1; i < records.size() && !next; ++i) {
    if (records[i]["event"] != "run" && records[i]["event"] != "checkpoint") next = whole(records[i], "step");
  }
  std::int64_t begun = 0;
  for (std::size_t i = 0; i < place; ++i) {
    if (records[i]["event"] != "checkpoint" || records[i].contains("failure")) continue;
    const std::int64_t step = whole(records[i], "step");
    if (!next || step < *next) begun = std::max(begun, step);
  }
  return begun;
}

void take(RunHistory& history, const std::vector<Json>& records) {
  for (std::size_t i = 0; i < records.size(); ++i) {
    const Json& record = records[i];
    const std::string event = words(record, "event");
    const std::int64_t step = whole(record, "step");
    if (event == "run") {
      history.starts.push_back({.step = history.starts.empty() ? 0 : begun_at(records, i), .facts = facts_of(record)});
    } else if (event == "epoch") {
      history.epochs[step] = epoch_of(record);
    } else if (event == "step") {
      history.stretches[step] = {figure(record, "train_loss"), figure(record, "train_acc"), figure(record, "lr")};
    } else if (event == "time") {
      history.times[step] = time_of(record);
    } else if (event == "checkpoint") {
      history.checkpoints[step] = checkpoint_of(record);
    } else if (event == "divergence" || event == "skipped") {
      history.events.push_back(event == "skipped" ? skipped_of(record) : divergence_of(record));
    }
  }
  // A resume plays steps again, and meets the same.
  std::ranges::stable_sort(history.events, {},
                           [](const RunEvent& each) { return std::tie(each.step, each.what, each.details); });
  const auto repeated = std::ranges::unique(history.events);
  history.events.erase(repeated.begin(), repeated.end());
}

std::string text_of_file(const std::string& path) {
  if (!std::filesystem::exists(path)) return {};
  const auto bytes = read_whole(path);
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

std::string date_of(const std::string& path) {
  struct stat status {};
  std::tm local{};
  if (::stat(path.c_str(), &status) != 0 || ::localtime_r(&status.st_mtime, &local) == nullptr) return {};
  char date[32];
  return {date, std::strftime(date, sizeof date, "%Y-%m-%d %H:%M", &local)};
}

// None where they are those of another version.
std::optional<RunConfig> options_of(const std::string& toml, const std::string& path) {
  if (toml.empty()) return std::nullopt;
  try {
    RunConfig config;
    std::set<std::string> read;
    read_config_text(toml, path, config, read);
    return config;
  } catch (const Error&) {
    return std::nullopt;
  }
}

std::string value_of(const Facts& facts, const std::string& name) {
  const auto found = std::ranges::find(facts, name, [](const auto& fact) { return fact.first; });
  return found != facts.end() ? found->second : "";
}

}  // namespace

std::string RunStart::fact(const std::string& name) const { return value_of(facts, name); }

std::string RunHistory::fact(const std::string& name) const { return starts.empty() ? "" : starts.back().fact(name); }

std::string RunHistory::end_fact(const std::string& name) const { return end ? value_of(*end, name) : ""; }

std::int64_t RunHistory::last_step() const {
  std::int64_t last = 0;
  const auto look = [&](const auto& records) {
    if (!records.empty()) last = std::max(last, records.rbegin()->first);
  };
  look(epochs);
  look(stretches);
  look(times);
  look(checkpoints);
  return last;
}

double RunHistory::epochs_at(std::int64_t step) const {
  std::int64_t step_before = 0;
  std::int64_t epoch_before = 0;
  double longest = 1;  // steps of an epoch
  for (const auto& [last, record] : epochs) {
    const auto between = static_cast<double>(std::max<std::int64_t>(1, record.epoch - epoch_before));
    longest = std::max(longest, static_cast<double>(last - step_before) / between);
    // One that was cut short lies at its number, too.
    if (step <= last) {
      return static_cast<double>(record.epoch) - std::min(static_cast<double>(last - step) / longest, between);
    }
    step_before = last;
    epoch_before = record.epoch;
  }
  return static_cast<double>(epoch_before) + static_cast<double>(step - step_before) / longest;
}

RunHistory read_run_history(const std::string& folder) {
  const std::string path = folder + "/metrics.jsonl";
  if (!std::filesystem::exists(path)) {
    throw Error(ErrorSource::input,
                fmt::format("'{}' holds no metrics.jsonl: give the folder that a training had as --out", folder));
  }
  RunHistory history{.folder = folder, .date = date_of(path)};
  const MetricsLines lines = read_metrics_lines(path);
  history.damaged_lines = lines.damaged;
  take(history, lines.records);
  history.options_text = text_of_file(folder + "/config.toml");
  history.options = options_of(history.options_text, folder + "/config.toml");
  const Json end = parse_shallow(text_of_file(folder + "/exit.json"));
  if (end.is_object()) history.end = facts_of(end);
  history.is_under_way = is_locked(folder);
  return history;
}

}  // namespace tutti
