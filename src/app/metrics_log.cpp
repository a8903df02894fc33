#include "metrics_log.hpp"

#include "tutti/base/checksums.hpp"
#include "tutti/base/digest.hpp"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <chrono>
#include <span>
#include <sstream>
#include <string_view>
#include <utility>

namespace tutti {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::size_t kMaxRanksListed = 64;

Json json_of(const TimeShares& shares) {
  Json json;
  for (std::size_t i = 0; i < kTimeShares; ++i) json[name_of(static_cast<TimeShare>(i))] = shares.seconds[i];
  return json;
}

// The record, with the current time appended.
std::string with_time(const std::string& json) {
  const std::chrono::duration<double> now = std::chrono::system_clock::now().time_since_epoch();
  return fmt::format(R"({},"unix_time":{:.3f}}})", std::string_view(json).substr(0, json.size() - 1), now.count());
}

constexpr std::string_view kHashField = R"(,"hash":")";
constexpr std::size_t kHashDigits = 64;

// The hash of the last complete record in such a file; empty if there is none.
std::string last_hash(const std::string& path) {
  std::string hash;
  if (!is_plain_file(path)) return hash;
  std::istringstream lines(read_file_text(path));
  for (std::string line; std::getline(lines, line);) {
    const std::size_t field = line.rfind(kHashField);
    if (field == std::string::npos || !line.ends_with("\"}")) continue;
    const std::string found = line.substr(field + kHashField.size(), line.size() - field - kHashField.size() - 2);
    if (found.size() == kHashDigits) hash = found;
  }
  return hash;
}

}  // namespace

MetricsLog::MetricsLog(const std::string& path, std::function<bool()> is_ours)
    : file_(path), is_ours_(std::move(is_ours)), hash_(last_hash(path)) {}

void MetricsLog::on_line(const std::string& json) {
  if (!is_ours_()) return;
  std::string record = with_time(json);
  const std::string hashed = hash_ + record;
  const std::string hash = sha256_text(std::as_bytes(std::span(hashed)));
  record.pop_back();
  file_.append(fmt::format("{}{}{}\"}}", record, kHashField, hash));
  hash_ = hash;
}

void MetricsLog::on_epoch(const EpochReport& report) {
  Json record{{"event", "epoch"},
              {"epoch", report.epoch},
              {"step", report.step},
              {"train_loss", report.train.mean_loss()},
              {"train_acc", report.train.accuracy()},
              {"test_loss", nullptr},
              {"test_acc", nullptr},
              {"seconds", report.seconds},
              {"test_seconds", report.test_seconds},
              {"images_per_second", report.images_per_second()},
              {"lr", report.learning_rate},
              {"digest", digest_text(report.weights_digest)},
              {"redone_steps", report.redone_steps}};
  if (report.audits) record["audits"] = *report.audits;
  if (report.test) {
    record["test_loss"] = report.test->mean_loss();
    record["test_acc"] = report.test->accuracy();
  }
  on_line(record.dump());
}

void MetricsLog::on_interval(const IntervalReport& report) {
  on_line(Json{{"event", "step"},
               {"step", report.step},
               {"train_loss", report.train.mean_loss()},
               {"train_acc", report.train.accuracy()},
               {"lr", report.learning_rate}}
              .dump());
}

void MetricsLog::on_digest(const DigestReport& report) {
  Json record{{"event", "digest"},
              {"step", report.step},
              {"weights", digest_text(report.weights)},
              {"gradients", digest_text(report.gradients)},
              {"optimizer", digest_text(report.optimizer)}};
  if (report.statistics) record["statistics"] = digest_text(*report.statistics);
  if (report.averages) record["averages"] = digest_text(*report.averages);
  on_line(record.dump());
}

void MetricsLog::on_divergence(const DivergenceReport& report) {
  Json record{{"event", "divergence"},
              {"step", report.step},
              {"equal_after", nullptr},
              {"ranks", report.ranks},
              {"tensors", report.tensors}};
  if (report.equal_after) record["equal_after"] = *report.equal_after;
  on_line(record.dump());
}

void MetricsLog::on_wrong_part(const WrongPartReport& report) {
  on_line(Json{{"event", "audit"},
               {"step", report.step},
               {"part", report.part},
               {"ranks", report.ranks},
               {"decided", report.is_decided},
               {"layer", report.layer},
               {"pass", name_of(report.pass)},
               {"repeats", report.repeats},
               {"right_at", report.last_confirmed_step}}
              .dump());
}

void MetricsLog::on_time(const EpochEnd& end, const TimeReport& time, const InputRates& input) {
  Json record{{"event", "time"}, {"epoch", end.epoch}, {"step", end.step}, {"seconds", time.seconds()}};
  record.update(json_of(time.mean()));
  record["worst"] = nullptr;
  if (const auto& worst = time.longest_wait) {
    record["worst"] = {
        {"rank", worst->rank}, {"host", worst->host}, {"phase", name_of(worst->cause)}, {"seconds", worst->seconds}};
  }
  record["core_images_per_second"] = input.core;
  record["rank_images_per_second"] = input.rank;
  if (time.ranks.size() <= kMaxRanksListed) {
    for (const TimeShares& rank : time.ranks) record["ranks"].push_back(json_of(rank));
  }
  on_line(record.dump());
}

void MetricsLog::on_skipped(const SkippedReport& report) {
  on_line(Json{{"event", "skipped"}, {"step", report.step}, {"rank", report.rank}, {"tensor", report.tensor}}.dump());
}

}  // namespace tutti
