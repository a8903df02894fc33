#include "run_reporter.hpp"

#include "tutti/base/error.hpp"
#include "tutti/train/progress.hpp"

#include "plural.hpp"
#include "process.hpp"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <cstdio>
#include <cstring>
#include <utility>

namespace tutti {

RunReporter::RunReporter(World& world, const ReportedRun& run)
    : world_(world),
      log_(world.rank(), world.host(), run.assembly.config.quiet),
      control_(run.control),
      checkpoints_(run.checkpoints),
      account_(run.account),
      classes_(run.assembly.network->classes()),
      rate_{.base = run.assembly.config.lr, .warmup_epochs = run.assembly.config.warmup_epochs} {
  if (world.rank() != 0) return;
  const RunConfig& config = run.assembly.config;
  if (draws_progress(config)) bar_.emplace();
  prints_lines_ = !bar_ && config.progress != ShowProgress::never && !config.quiet;
  if (!config.out.empty()) {
    metrics_.emplace(config.out + "/metrics.jsonl", [folder = run.folder] { return folder.loss().empty(); });
  }
  if (!config.sample_log.empty()) {
    sample_log_.emplace(config.sample_log, run.resumes ? EarlierLines::kept : EarlierLines::dropped);
  }
}

// A failing disk is reported once, not at every record.
template <class Write>
void RunReporter::record(Write write) {
  try {
    if (metrics_) write(*metrics_);
  } catch (const Error& error) {
    warn_of_lost_record(error);
  }
}

// Called while the error is handled.
void RunReporter::warn_of_lost_record(const Error& error) {
  if (error.source() != ErrorSource::save) throw;
  if (!warned_of_.insert(error.what()).second) return;
  if (bar_) bar_->clear();
  log_.warn(fmt::format("a record is lost, and training continues: {}", error.what()));
}

void RunReporter::record_line(const std::string& json) {
  if (bar_) bar_->clear();
  record([&](MetricsLog& metrics) { metrics.on_line(json); });
}

void RunReporter::start(const std::string& run_record, std::int64_t steps) {
  record_line(run_record);
  resumes_ = steps > 0;
  since_start_.restart();
}

void RunReporter::finish(RunEnd end, std::int64_t steps, std::int64_t skipped_steps) {
  if (bar_) bar_->clear();
  if (skipped_steps > 0) log_.note(plural(skipped_steps, "step") + " skipped (--on-nonfinite skip)");
  if (checkpoints_ != nullptr) checkpoints_->finish([this](const std::string& json) { record_line(json); });
  print_time();
  record_line(
      fmt::format(R"({{"event":"end","step":{},"status":"{}"}})", steps, end == RunEnd::planned ? "done" : "stopped"));
}

// Not if the only epoch of the run has printed the same.
void RunReporter::print_time() {
  if (epochs_.empty() || (epochs_.size() == 1 && has_printed_time_)) return;
  log_.note((resumes_ ? "this launch: " : "whole run: ") + time_line(time_.report()));
}

BoundaryAction RunReporter::at_boundary(std::int64_t /*step*/) {
  if (checkpoints_ != nullptr) checkpoints_->report([this](const std::string& json) { record_line(json); });
  return control_.at_boundary();
}

// A line of the sample log: {"step":k,"epoch":e,"parts":[[samples]..]}.
void RunReporter::on_samples(const SampleReport& report) {
  if (!sample_log_) return;
  const nlohmann::ordered_json json{{"step", report.step}, {"epoch", report.epoch}, {"parts", report.parts}};
  try {
    sample_log_->append(json.dump());
  } catch (const Error& error) {
    warn_of_lost_record(error);
  }
}

void RunReporter::on_step(const StepProgress& progress) {
  lines_.count(progress);
  if (bar_) bar_->draw(progress);
  if (prints_lines_ && lines_.is_due(since_start_.seconds())) {
    const LossSums loss = progress.rank_loss();
    on_note(lines_.text(since_start_.seconds(), loss) + (world_.size() > 1 ? " (loss of rank 0's images)" : ""));
  }
  account_.count_step();
}

void RunReporter::on_note(const std::string& text) {
  if (bar_) bar_->clear();
  log_.note(text);
}

// More of them are only counted.
void RunReporter::on_skipped(const SkippedReport& report) {
  constexpr std::int64_t kMostNotes = 10;
  record([&](MetricsLog& metrics) { metrics.on_skipped(report); });
  if (report.in_all > kMostNotes) return;
  on_note(fmt::format("{}: the step is skipped{}", report.finding,
                      report.in_all == kMostNotes ? "; more such steps will only be counted" : ""));
}

void RunReporter::on_interval(const IntervalReport& report) {
  record([&](MetricsLog& metrics) { metrics.on_interval(report); });
  on_note(lines_.text(since_start_.seconds(), report.train));
}

void RunReporter::on_digest(const DigestReport& report) {
  record([&](MetricsLog& metrics) { metrics.on_digest(report); });
}

void RunReporter::on_epoch(const EpochReport& report) {
  if (bar_) bar_->clear();
  if (world_.rank() == 0) {
    fmt::print("{}\n", epoch_line(report));
    std::fflush(stdout);
    const std::string guessing = has_warned_ ? "" : guessing_text(report, classes_, rate_);
    if (!guessing.empty()) log_.warn(guessing);
    has_warned_ = has_warned_ || !guessing.empty();
    if (stdout_failure() != 0 && !stdout_is_abandoned() && warned_of_.insert("stdout").second) {
      log_.warn(fmt::format("cannot write to stdout: {}; training continues, and ends with status 73",
                            std::strerror(stdout_failure())));
    }
  }
  record([&](MetricsLog& metrics) { metrics.on_epoch(report); });
}

void RunReporter::on_divergence(const DivergenceReport& report) {
  record([&](MetricsLog& metrics) { metrics.on_divergence(report); });
}

void RunReporter::on_checkpoint(TrainState state, double copy_seconds) {
  if (checkpoints_ != nullptr) checkpoints_->save(std::move(state), copy_seconds);
}

void RunReporter::on_epoch_end(const EpochEnd& end) {
  epochs_.push_back(end);
  const TimeReport time = account_.report();
  time_.add(time);
  has_printed_time_ = is_notable(time);
  if (has_printed_time_) on_note(time_line(time));
  record([&](MetricsLog& metrics) { metrics.on_time(end, time); });
}

}  // namespace tutti
