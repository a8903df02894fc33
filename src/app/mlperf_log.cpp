#include "mlperf_log.hpp"

#include "process_clock.hpp"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <chrono>
#include <source_location>
#include <utility>

namespace tutti {
namespace {

using Json = nlohmann::ordered_json;

constexpr const char* kPoint = "POINT_IN_TIME";
constexpr const char* kStart = "INTERVAL_START";
constexpr const char* kStop = "INTERVAL_END";

std::int64_t now_ms() {
  using namespace std::chrono;
  return duration_cast<milliseconds>(system_clock::now().time_since_epoch()).count();
}

std::int64_t ms_of(double seconds) { return static_cast<std::int64_t>(seconds * 1000); }

struct Line {
  const char* type = kPoint;
  const char* key = "";
  std::int64_t at_ms = 0;
  Json value = nullptr;
  Json metadata = Json::object();  // besides the place in the source, which readers want to be there
};

std::string text_of(Line line, std::source_location where = std::source_location::current()) {
  const std::string path = where.file_name();
  line.metadata["file"] = path.substr(path.rfind('/') + 1);
  line.metadata["lineno"] = where.line();
  const Json json{{"namespace", ""}, {"time_ms", line.at_ms}, {"event_type", line.type},
                  {"key", line.key}, {"value", line.value},   {"metadata", line.metadata}};
  return ":::MLLOG " + json.dump();
}

Json of_epoch(std::int64_t epoch) { return {{"epoch_num", epoch}}; }

}  // namespace

MlperfLog::MlperfLog(const std::string& path, MlperfFacts facts) : file_(path), facts_(std::move(facts)) {}

void MlperfLog::on_begin(const RunBegin&) {
  const std::int64_t now = now_ms();
  const std::pair<const char*, Json> choices[] = {{"seed", facts_.seed},
                                                  {"global_batch_size", facts_.batch_size},
                                                  {"train_samples", facts_.train_samples},
                                                  {"eval_samples", facts_.test_samples},
                                                  {"opt_name", facts_.optimizer},
                                                  {"opt_base_learning_rate", facts_.learning_rate},
                                                  {"opt_learning_rate_warmup_epochs", facts_.warmup_epochs},
                                                  {"opt_momentum", facts_.momentum},
                                                  {"opt_weight_decay", facts_.weight_decay}};
  file_.append(text_of({.type = kStart, .key = "init_start", .at_ms = now - ms_of(seconds_since_process_start())}));
  for (const auto& [key, value] : choices) file_.append(text_of({.key = key, .at_ms = now, .value = value}));
  file_.append(text_of({.type = kStop, .key = "init_stop", .at_ms = now}));
  file_.append(text_of({.type = kStart, .key = "run_start", .at_ms = now}));
  epoch_begun_ms_ = now;
}

// Only a step tells that there is a further epoch, and which.
void MlperfLog::on_step(const StepProgress& progress) {
  if (!epoch_begun_ms_) return;
  const std::int64_t begun = *std::exchange(epoch_begun_ms_, std::nullopt);
  file_.append(text_of({.type = kStart, .key = "epoch_start", .at_ms = begun, .metadata = of_epoch(progress.epoch)}));
}

void MlperfLog::on_epoch(const EpochReport& report) {
  const std::int64_t now = now_ms();
  const std::int64_t trained = now - ms_of(report.test_seconds);
  const Json epoch = of_epoch(report.epoch);
  Json step = epoch;
  step["step"] = report.step;
  file_.append(text_of({.type = kStop, .key = "epoch_stop", .at_ms = trained, .metadata = epoch}));
  if (report.test) {
    file_.append(text_of({.type = kStart, .key = "eval_start", .at_ms = trained, .metadata = epoch}));
    file_.append(text_of({.type = kStop, .key = "eval_stop", .at_ms = now, .metadata = epoch}));
    file_.append(text_of({.key = "eval_accuracy", .at_ms = now, .value = report.test->accuracy(), .metadata = epoch}));
  }
  const Json stats{{"throughput", report.images_per_second()}, {"train_loss", report.train.mean_loss()}};
  file_.append(text_of({.key = "tracked_stats", .at_ms = now, .value = stats, .metadata = step}));
}

void MlperfLog::on_epoch_left(const EpochEnd&) { epoch_begun_ms_ = now_ms(); }

void MlperfLog::on_end(RunEnd end) {
  const Json status{{"status", end == RunEnd::planned ? "success" : "aborted"}};
  file_.append(text_of({.type = kStop, .key = "run_stop", .at_ms = now_ms(), .metadata = status}));
}

}  // namespace tutti
