#include "run_reporter.hpp"

#include "tutti/base/error.hpp"
#include "tutti/train/epoch_line.hpp"

#include "several.hpp"

#include <fmt/format.h>
#include <nlohmann/json.hpp>
#include <unistd.h>

#include <cstdio>
#include <utility>

namespace tutti {

// Only stderr may be drawn upon: stdout is for results, and under mpirun it looks like a terminal even if it is none.
bool wants_bar(const RunConfig& config) {
  const bool terminal = ::isatty(STDERR_FILENO) == 1 && !config.quiet;
  return config.progress == "always" || (config.progress == "auto" && terminal);
}

RunReporter::RunReporter(World& world, const RunConfig& config, const RunKeeping* keeping, TimeAccount& account)
    : world_(world), log_(world.rank(), world.host(), config.quiet), keeping_(keeping), account_(account) {
  if (world.rank() != 0) return;
  if (keeping != nullptr) metrics_.emplace(config.out + "/metrics.jsonl");
  if (!config.sample_log.empty()) samples_.emplace(config.sample_log);
  if (wants_bar(config)) bar_.emplace();
}

// What is wrong with the disk is said once, not at every record.
template <class Write>
void RunReporter::recording(Write write) {
  try {
    write();
  } catch (const Error& error) {
    if (error.source() != ErrorSource::save) throw;
    if (!troubles_.insert(error.what()).second) return;
    if (bar_) bar_->clear();
    log_.warn(fmt::format("a record is lost, and training goes on: {}", error.what()));
  }
}

template <class Report>
void RunReporter::record(const Report& report) {
  if (metrics_) recording([&] { metrics_->write(report); });
}

void RunReporter::record_line(const std::string& json) {
  if (bar_) bar_->clear();
  if (metrics_) recording([&] { metrics_->write_line(json); });
}

void RunReporter::start(const std::string& run_record) { record_line(run_record); }

void RunReporter::finish(std::int64_t skipped_steps) {
  if (bar_) bar_->clear();
  if (skipped_steps > 0) log_.note(several(skipped_steps, "step") + " left out (--on-nonfinite skip)");
  if (keeping_ != nullptr) keeping_->checkpoints.finish([this](const std::string& json) { record_line(json); });
}

BoundaryWish RunReporter::at_boundary(std::int64_t /*step*/) {
  if (keeping_ == nullptr) return BoundaryWish::go_on;
  keeping_->checkpoints.tell([this](const std::string& json) { record_line(json); });
  return keeping_->control.at_boundary();
}

void RunReporter::on_samples(const SampleReport& report) {
  if (!samples_) return;
  const nlohmann::ordered_json json{{"step", report.step}, {"epoch", report.epoch}, {"parts", report.parts}};
  recording([&] { samples_->append(json.dump()); });
}

void RunReporter::on_step(const StepProgress& progress) {
  if (bar_) bar_->draw(progress);
  account_.count_step();
}

void RunReporter::on_note(const std::string& text) {
  if (bar_) bar_->clear();
  log_.note(text);
}

// What happens more often is only counted.
void RunReporter::on_skipped(const SkippedReport& report) {
  constexpr std::int64_t kMostNotes = 10;
  record(report);
  if (report.in_all > kMostNotes) return;
  on_note(fmt::format("{}: the step is left out{}", report.finding,
                      report.in_all == kMostNotes ? "; more such steps will only be counted" : ""));
}

void RunReporter::on_stretch(const StretchReport& report) { record(report); }

void RunReporter::on_digest(const DigestReport& report) { record(report); }

void RunReporter::on_epoch(const EpochReport& report) {
  if (bar_) bar_->clear();
  if (world_.rank() == 0) {
    fmt::print("{}\n", epoch_line(report));
    std::fflush(stdout);
  }
  record(report);
}

void RunReporter::on_divergence(const DivergenceReport& report) {
  record(report);
  if (report.heals) on_note(report.text);
}

void RunReporter::on_checkpoint(TrainState state, double copy_seconds) {
  if (keeping_ != nullptr) keeping_->checkpoints.take(std::move(state), copy_seconds);
}

void RunReporter::on_epoch_left(const EpochEnd& end) {
  epochs_.push_back(end);
  const TimeReport time = account_.report();
  on_note(time_line(time));
  if (metrics_) recording([&] { metrics_->write(end, time); });
}

}  // namespace tutti
