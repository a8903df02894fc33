#include "run_reporter.hpp"

#include "tutti/base/error.hpp"
#include "tutti/train/epoch_line.hpp"

#include "plural.hpp"
#include "standard_streams.hpp"
#include "terminal.hpp"

#include <fmt/format.h>

#include <cstdio>
#include <cstring>
#include <utility>

namespace tutti {
RunReporter::RunReporter(World& world, const RunConfig& config, const RunKeeping* keeping, TimeAccount& account,
                         int classes)
    : world_(world),
      log_(world.rank(), world.host(), config.quiet),
      keeping_(keeping),
      account_(account),
      classes_(classes),
      rate_{.base = config.lr, .warmup_epochs = config.warmup_epochs} {
  if (world.rank() != 0) return;
  if (draws_progress(config)) bar_.emplace();
  prints_lines_ = !bar_ && config.progress != "never" && !config.quiet;
}

// What is wrong with the disk is said once, not at every record.
template <class Tell>
void RunReporter::record(Tell tell) {
  for (const auto& recorder : recorders_) {
    try {
      tell(*recorder);
    } catch (const Error& error) {
      if (error.source() != ErrorSource::save) throw;
      if (!troubles_.insert(error.what()).second) continue;
      if (bar_) bar_->clear();
      log_.warn(fmt::format("a record is lost, and training goes on: {}", error.what()));
    }
  }
}

void RunReporter::record_line(const std::string& json) {
  if (bar_) bar_->clear();
  record([&](RunRecorder& each) { each.on_line(json); });
}

void RunReporter::start(const std::string& run_record, std::int64_t steps) {
  record_line(run_record);
  resumes_ = steps > 0;
  since_start_.restart();
}

void RunReporter::finish(RunEnd end, std::int64_t steps, std::int64_t skipped_steps) {
  if (bar_) bar_->clear();
  if (skipped_steps > 0) log_.note(plural(skipped_steps, "step") + " left out (--on-nonfinite skip)");
  if (keeps_checkpoints()) keeping_->checkpoints->finish([this](const std::string& json) { record_line(json); });
  print_time();
  record_line(
      fmt::format(R"({{"event":"end","step":{},"status":"{}"}})", steps, end == RunEnd::planned ? "done" : "stopped"));
}

// Not again what the only epoch of the run has printed.
void RunReporter::print_time() {
  if (epochs_.empty() || (epochs_.size() == 1 && has_printed_time_)) return;
  log_.note((resumes_ ? "this launch: " : "whole run: ") + time_line(time_.report()));
}

BoundaryWish RunReporter::at_boundary(std::int64_t /*step*/) {
  if (keeping_ == nullptr) return BoundaryWish::go_on;
  if (keeps_checkpoints()) keeping_->checkpoints->tell([this](const std::string& json) { record_line(json); });
  return keeping_->control.at_boundary();
}

void RunReporter::on_samples(const SampleReport& report) {
  record([&](RunRecorder& each) { each.on_samples(report); });
}

void RunReporter::on_step(const StepProgress& progress) {
  lines_.count(progress);
  if (bar_) bar_->draw(progress);
  if (prints_lines_ && lines_.is_due(since_start_.seconds())) {
    const LossSums loss = progress.rank_loss();
    on_note(lines_.text(since_start_.seconds(), loss) + (world_.size() > 1 ? " (loss of rank 0's images)" : ""));
  }
  record([&](RunRecorder& each) { each.on_step(progress); });
  account_.count_step();
}

void RunReporter::on_note(const std::string& text) {
  if (bar_) bar_->clear();
  log_.note(text);
}

// What happens more often is only counted.
void RunReporter::on_skipped(const SkippedReport& report) {
  constexpr std::int64_t kMostNotes = 10;
  record([&](RunRecorder& each) { each.on_skipped(report); });
  if (report.in_all > kMostNotes) return;
  on_note(fmt::format("{}: the step is left out{}", report.finding,
                      report.in_all == kMostNotes ? "; more such steps will only be counted" : ""));
}

void RunReporter::on_stretch(const StretchReport& report) {
  record([&](RunRecorder& each) { each.on_stretch(report); });
  on_note(lines_.text(since_start_.seconds(), report.train));
}

void RunReporter::on_digest(const DigestReport& report) {
  record([&](RunRecorder& each) { each.on_digest(report); });
}

void RunReporter::on_epoch(const EpochReport& report) {
  if (bar_) bar_->clear();
  if (world_.rank() == 0) {
    fmt::print("{}\n", epoch_line(report));
    std::fflush(stdout);
    const std::string guessing = has_warned_ ? "" : guessing_text(report, classes_, rate_);
    if (!guessing.empty()) log_.warn(guessing);
    has_warned_ = has_warned_ || !guessing.empty();
    if (stdout_failure() != 0 && !stdout_is_abandoned() && troubles_.insert("stdout").second) {
      log_.warn(fmt::format("cannot write to stdout: {}; training goes on, and ends with status 73",
                            std::strerror(stdout_failure())));
    }
  }
  record([&](RunRecorder& each) { each.on_epoch(report); });
}

void RunReporter::on_divergence(const DivergenceReport& report) {
  record([&](RunRecorder& each) { each.on_divergence(report); });
}

void RunReporter::on_checkpoint(TrainState state, double copy_seconds) {
  if (keeps_checkpoints()) keeping_->checkpoints->take(std::move(state), copy_seconds);
}

void RunReporter::on_epoch_left(const EpochEnd& end) {
  epochs_.push_back(end);
  const TimeReport time = account_.report();
  time_.add(time);
  has_printed_time_ = is_worth_a_look(time);
  if (has_printed_time_) on_note(time_line(time));
  record([&](RunRecorder& each) {
    each.on_time(end, time);
    each.on_epoch_left(end);
  });
}

}  // namespace tutti
