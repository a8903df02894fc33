#include "run_reporter.hpp"

#include "tutti/train/epoch_line.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <cstdio>

namespace tutti {
namespace {

// Only stderr may be drawn upon: stdout is for results, and under mpirun it looks like a terminal even where it is none.
bool wants_bar(const RunConfig& config) {
  const bool terminal = ::isatty(STDERR_FILENO) == 1 && !config.quiet;
  return config.progress == "always" || (config.progress == "auto" && terminal);
}

}  // namespace

RunReporter::RunReporter(World& world, const RunConfig& config, const CheckpointStore* store)
    : world_(world), log_(world.rank(), world.host(), config.quiet), store_(store) {
  if (world.rank() != 0) return;
  if (store != nullptr) metrics_.emplace(config.out + "/metrics.jsonl");
  if (wants_bar(config)) bar_.emplace();
}

void RunReporter::start(const std::string& run_record) {
  if (metrics_) metrics_->write_line(run_record);
}

void RunReporter::on_step(const StepProgress& progress) {
  if (bar_) bar_->draw(progress);
}

void RunReporter::on_note(const std::string& text) {
  if (bar_) bar_->clear();
  log_.note(text);
}

void RunReporter::on_stretch(const StretchReport& report) {
  if (metrics_) metrics_->write(report);
}

void RunReporter::on_digest(const DigestReport& report) {
  if (metrics_) metrics_->write(report);
}

void RunReporter::on_epoch(const EpochReport& report) {
  if (bar_) bar_->clear();
  if (world_.rank() == 0) {
    fmt::print("{}\n", epoch_line(report));
    std::fflush(stdout);
  }
  if (metrics_) metrics_->write(report);
}

void RunReporter::on_checkpoint(TrainState state) {
  if (store_ != nullptr) store_->save(state);
}

}  // namespace tutti
