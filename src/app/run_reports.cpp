#include "run_reports.hpp"

#include "tutti/base/digest.hpp"
#include "tutti/base/error.hpp"
#include "tutti/base/process.hpp"
#include "tutti/storage/array_file.hpp"
#include "tutti/train/progress.hpp"

#include "device_choice.hpp"
#include "option_table.hpp"
#include "output.hpp"
#include "streams_and_signals.hpp"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <cstdio>
#include <cstring>
#include <set>
#include <utility>

namespace tutti {
namespace {

std::string part_size_text(const RunConfig& config) {
  const std::int64_t whole = config.batch_size / config.parts;
  return config.batch_size % config.parts == 0 ? fmt::format("{}", whole) : fmt::format("{} or {}", whole, whole + 1);
}

const char* state_location(const ExchangeOptions& exchange) {
  switch (exchange.owners()) {
    case Owners::all:
      return "on every rank";
    case Owners::sharded:
      return "sharded";
    case Owners::root:
      return "on rank 0";
  }
  return "";
}

bool schedule_ends_with_invocation(const RunConfig& config) {
  return config.schedule_epochs == kScheduleOfInvocation && config.steps > 0;
}

std::int64_t schedule_epochs(const RunConfig& config) {
  return config.schedule_epochs > 0 ? config.schedule_epochs : config.epochs;
}

std::string schedule_end_text(const RunConfig& config) {
  return schedule_ends_with_invocation(config) ? fmt::format("step {}", config.steps)
                                               : fmt::format("epoch {}", schedule_epochs(config));
}

}  // namespace

std::string moved_schedule_text(const RunConfig& config, const LoadedCheckpoint& resumed, const RateAtResume& rate) {
  const RunConfig before = merge_for_resume({}, {}, resumed.state.configuration, resumed.path);
  if (config.rate.schedule != Schedule::cosine || schedule_end_text(config) == schedule_end_text(before)) return {};
  const bool is_over = resumed.state.progress.epoch >= schedule_epochs(before);
  const bool would_stop = config.rate.min == 0 && config.epochs > schedule_epochs(before);
  const bool can_keep = !schedule_ends_with_invocation(before) && !is_over && !would_stop;
  return fmt::format(
      "the cosine schedule ends at {} now, not at {}, so the learning rate jumps from {:.3g} to {:.3g}; {}",
      schedule_end_text(config), schedule_end_text(before), rate.before, rate.now,
      can_keep ? fmt::format("to avoid that, give --schedule-epochs {}", schedule_epochs(before))
               : fmt::format("for another schedule, start a new run with --init-from {}", resumed.path));
}

std::string late_schedule_text(const RunConfig& config) {
  if (config.rate.schedule != Schedule::cosine || config.rate.min == 0 || schedule_epochs(config) >= config.epochs)
    return {};
  return fmt::format("the cosine schedule ends at {}: the learning rate is {:g} from there to epoch {}",
                     schedule_end_text(config), config.rate.min, config.epochs);
}

void log_start(const Assembly& assembly, World& world, const Trainer& trainer, const Log& log) {
  const auto hosts = all_gather_text(world, world.host());
  const auto num_hosts = static_cast<std::int64_t>(std::set<std::string>(hosts.begin(), hosts.end()).size());
  const RunConfig& config = assembly.config;
  const DatasetInfo& data = assembly.data.train->info();
  const std::int64_t test_samples = assembly.data.test ? assembly.data.test->info().samples : 0;
  log.info(versions_text(*assembly.backend, world));
  log.info(fmt::format("{} on {}, {} of {} cores usable here, {} per part{}", plural(world.size(), "rank"),
                       plural(num_hosts, "host"), assembly.cores.usable, assembly.cores.present,
                       plural(config.threads, "thread"),
                       trainer.workers() > 1 ? fmt::format(", {} concurrent parts per rank", trainer.workers()) : ""));
  log.info(fmt::format("batch {} = {} of {} images, exchange {} ({}), optimizer state {}", config.batch_size,
                       plural(config.parts, "part"), part_size_text(config), name_of(*config.exchange),
                       assembly.communicator->description(), state_location(assembly.options.exchange)));
  const Shape& image = assembly.options.recipe.image;
  const std::string from =
      image == data.image ? "" : fmt::format(" from {}", data.sizes_differ() ? "several sizes" : data.image.text());
  log.info(fmt::format("{}: {} training and {} test images of {}{}, {} classes", data.name, data.samples, test_samples,
                       image.text(), from, data.classes));
  if (test_samples == 0)
    log.info("no test set: hold one out with --validation-ratio 0.1, or give one with --test-data");
  if (world.rank() == 0 && config.last_batch == LastBatch::keep && data.samples < config.batch_size) {
    log.warn(
        fmt::format("--batch-size {} is more than {}: every step trains on all of them; use a smaller --batch-size "
                    "for more steps per epoch",
                    config.batch_size, plural(data.samples, "training image")));
  }
  log.info(fmt::format("{}: {} parameters, {:.2f} million multiply-adds per image, precision {}, {} planned",
                       assembly.network->spec().name, assembly.network->layout().parameters(),
                       static_cast<double>(assembly.network->multiply_adds()) / 1e6, name_of(*config.precision),
                       plural(trainer.planned_steps(), "step")));
  const std::string search =
      assembly.processor.is_gpu() ? load_cuda_libraries().cuda.search_summary(*assembly.backend) : "";
  for (const std::string& of_rank : all_gather_text(world, search)) {
    if (!of_rank.empty()) log.info(of_rank);
  }
  const std::size_t data_bytes =
      assembly.data.train->resident_bytes() + (assembly.data.test ? assembly.data.test->resident_bytes() : 0);
  log.info(fmt::format("memory about {:.0f} MiB of network per rank and {:.0f} MiB of data per host",
                       mebi(trainer.memory_bytes()), mebi(data_bytes)));
  if (config.out.empty()) return;
  log.info(fmt::format("checkpoints in {}/checkpoints: {}; {} kept{}", config.out,
                       checkpoint_every_text(*config.checkpoint_every),
                       config.keep_checkpoints == 0 ? "all" : fmt::format("the newest {}", config.keep_checkpoints),
                       config.keep_best && config.keep_checkpoints != 0 ? ", and that of the best evaluation" : ""));
}

std::string run_record(const Assembly& assembly, const World& world, const std::vector<std::string>& arguments,
                       std::int64_t steps) {
  const RunConfig& config = assembly.config;
  nlohmann::ordered_json record{{"event", "run"},
                                {"command_line", arguments},
                                {"version", version()},
                                {"libraries", versions_text(*assembly.backend, world)},
                                {"device", assembly.backend->description()},
                                {"precision", name_of(*config.precision)},
                                {"exchange", name_of(*config.exchange)},
                                {"optimizer_state", state_location(assembly.options.exchange)},
                                {"communicator", assembly.communicator->description()},
                                {"ranks", world.size()},
                                {"parts", config.parts},
                                {"threads", config.threads},
                                {"oversubscribed", !has_room_for(assembly.cores, world, config.threads)},
                                {"seed", config.seed},
                                {"model", assembly.network->spec().name},
                                {"parameters", assembly.network->layout().parameters()},
                                {"data", config.data},
                                {"data_digest", digest_text(assembly.data_digest)},
                                {"train_samples", assembly.data.train->info().samples},
                                {"test_samples", assembly.data.test ? assembly.data.test->info().samples : 0},
                                {"batch_size", config.batch_size},
                                {"optimizer", name_of(config.optimizer.kind)},
                                {"lr", config.rate.base},
                                {"warmup_epochs", config.rate.warmup_epochs},
                                {"momentum", config.optimizer.momentum},
                                {"weight_decay", config.optimizer.weight_decay},
                                {"host", world.host()},
                                {"startup_seconds", seconds_since_process_start()},
                                {"step", steps}};
  if (!config.rehearse.empty()) record["rehearse"] = config.rehearse;
  return json_line(record);
}

std::string versions_text(const Backend& backend, const World& world) {
  return fmt::format("tutti {}; {}; {}; HDF5 {}", version(), backend.description(), world.description(),
                     array_library_version());
}

RunOutput::RunOutput(World& world, const ReportedRun& run)
    : world_(world),
      log_(world.rank(), world.host(), run.assembly.config.quiet),
      control_(run.control),
      checkpoints_(run.checkpoints),
      time_profile_(run.time_profile),
      classes_(run.assembly.network->classes()),
      rate_(run.assembly.config.rate) {
  if (world.rank() != 0) return;
  const RunConfig& config = run.assembly.config;
  if (draws_progress(config)) bar_.emplace();
  prints_lines_ = !bar_ && config.progress != ShowProgress::never && !config.quiet;
  if (!config.out.empty()) {
    metrics_.emplace(config.out + "/metrics.jsonl", [folder = run.folder] { return folder.loss_reason().empty(); });
  }
  if (!config.sample_log.empty()) {
    sample_log_.emplace(config.sample_log, run.resumes ? EarlierLines::kept : EarlierLines::dropped);
  }
}

// A failing disk is reported once, not at every record.
template <class Write>
void RunOutput::record(Write write) {
  try {
    if (metrics_) write(*metrics_);
  } catch (const Error& error) {
    warn_of_lost_record(error);
  }
}

// Called from the handler of the error.
void RunOutput::warn_of_lost_record(const Error& error) {
  if (error.source() != ErrorSource::save) throw;
  if (!warned_of_.insert(error.what()).second) return;
  if (bar_) bar_->clear();
  log_.warn(fmt::format("a record is lost, and training continues: {}", error.what()));
}

void RunOutput::record_line(const std::string& json) {
  if (bar_) bar_->clear();
  record([&](MetricsLog& metrics) { metrics.on_line(json); });
}

void RunOutput::start(const std::string& run_record, std::int64_t steps) {
  record_line(run_record);
  resumes_ = steps > 0;
  since_start_.restart();
}

void RunOutput::finish(RunEnd end, std::int64_t steps, std::int64_t skipped_steps) {
  if (bar_) bar_->clear();
  if (skipped_steps > 0) log_.info(plural(skipped_steps, "step") + " skipped (--on-nonfinite skip)");
  if (checkpoints_ != nullptr) checkpoints_->finish([this](const std::string& json) { record_line(json); });
  print_time();
  record_line(
      fmt::format(R"({{"event":"end","step":{},"status":"{}"}})", steps, end == RunEnd::planned ? "done" : "stopped"));
}

// Prints nothing if the only epoch of the run has printed the same.
void RunOutput::print_time() {
  if (epochs_.empty() || (epochs_.size() == 1 && has_printed_time_)) return;
  log_.info((resumes_ ? "this invocation: " : "whole run: ") + time_line(time_.report()));
}

BoundaryAction RunOutput::at_boundary(std::int64_t /*step*/) {
  if (checkpoints_ != nullptr) checkpoints_->report([this](const std::string& json) { record_line(json); });
  return control_.at_boundary();
}

// A line of the sample log: {"step":k,"epoch":e,"parts":[[samples]..]}.
void RunOutput::on_samples(const SampleReport& report) {
  if (!sample_log_) return;
  const nlohmann::ordered_json json{{"step", report.step}, {"epoch", report.epoch}, {"parts", report.parts}};
  try {
    sample_log_->append(json.dump());
  } catch (const Error& error) {
    warn_of_lost_record(error);
  }
}

void RunOutput::on_step(const StepProgress& progress) {
  lines_.count(progress);
  if (bar_) bar_->draw(progress);
  if (prints_lines_ && lines_.is_due(since_start_.seconds())) {
    const LossSums loss = progress.rank_loss();
    on_note(lines_.text(since_start_.seconds(), loss) + (world_.size() > 1 ? " (loss of rank 0's images)" : ""));
  }
  time_profile_.count_step();
}

void RunOutput::on_note(const std::string& text) {
  if (bar_) bar_->clear();
  log_.info(text);
}

// Further ones are only counted.
void RunOutput::on_skipped(const SkippedReport& report) {
  constexpr std::int64_t kMaxNotes = 10;
  record([&](MetricsLog& metrics) { metrics.on_skipped(report); });
  if (report.in_all > kMaxNotes) return;
  on_note(fmt::format("{}: step skipped{}", report.finding,
                      report.in_all == kMaxNotes ? "; further ones will only be counted" : ""));
}

void RunOutput::on_interval(const IntervalReport& report) {
  record([&](MetricsLog& metrics) { metrics.on_interval(report); });
  on_note(lines_.text(since_start_.seconds(), report.train));
}

void RunOutput::on_digest(const DigestReport& report) {
  record([&](MetricsLog& metrics) { metrics.on_digest(report); });
}

void RunOutput::on_epoch(const EpochReport& report) {
  if (bar_) bar_->clear();
  if (world_.rank() == 0) {
    fmt::print("{}\n", epoch_line(report));
    std::fflush(stdout);
    const std::string guessing = has_warned_ ? "" : not_learning_warning(report, classes_, rate_);
    if (!guessing.empty()) log_.warn(guessing);
    has_warned_ = has_warned_ || !guessing.empty();
    if (stdout_failure() != 0 && !stdout_is_abandoned() && warned_of_.insert("stdout").second) {
      log_.warn(fmt::format("cannot write to stdout: {}; training continues, and ends with status 73",
                            std::strerror(stdout_failure())));
    }
  }
  record([&](MetricsLog& metrics) { metrics.on_epoch(report); });
}

void RunOutput::on_divergence(const DivergenceReport& report) {
  record([&](MetricsLog& metrics) { metrics.on_divergence(report); });
}

void RunOutput::on_checkpoint(TrainState state, double copy_seconds) {
  if (checkpoints_ != nullptr) checkpoints_->save(std::move(state), copy_seconds);
}

void RunOutput::on_epoch_end(const EpochEnd& end) {
  epochs_.push_back(end);
  const TimeReport time = time_profile_.report();
  time_.add(time);
  has_printed_time_ = is_notable(time);
  if (has_printed_time_) on_note(time_line(time));
  record([&](MetricsLog& metrics) { metrics.on_time(end, time); });
}

}  // namespace tutti
