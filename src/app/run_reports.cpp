#include "run_reports.hpp"

#include "tutti/base/digest.hpp"
#include "tutti/base/error.hpp"
#include "tutti/base/process.hpp"
#include "tutti/storage/array_file.hpp"

#include "input_rates.hpp"
#include "option_table.hpp"
#include "output.hpp"
#include "streams_and_signals.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <set>
#include <utility>

namespace tutti {
namespace {

std::string part_size_text(const RunConfig& config) {
  const std::int64_t whole = config.trainer.batch_size / config.trainer.num_parts;
  return config.trainer.batch_size % config.trainer.num_parts == 0 ? fmt::format("{}", whole)
                                                                   : fmt::format("{} or {}", whole, whole + 1);
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

std::string record_of(const SaveReport& report, double stall_seconds) {
  nlohmann::ordered_json json{{"event", "checkpoint"},
                              {"step", report.step},
                              {"file", std::filesystem::path(report.path).filename().string()},
                              {"bytes", report.bytes},
                              {"seconds", report.seconds},
                              {"stall_seconds", stall_seconds}};
  if (!report.evicted_steps.empty()) json["given_up"] = report.evicted_steps;
  if (!report.failure.empty()) json["failure"] = report.failure;
  return json_line(json);
}

std::string run_record(const World& world, const ReportedRun& run) {
  const Assembly& assembly = run.assembly;
  const RunConfig& config = assembly.config;
  nlohmann::ordered_json record{{"event", "run"},
                                {"command_line", run.arguments},
                                {"version", version()},
                                {"libraries", versions_text(*assembly.processor.backend, world)},
                                {"device", assembly.processor.backend->description()},
                                {"precision", name_of(*config.processor.precision)},
                                {"exchange", name_of(*config.exchange)},
                                {"wire", name_of(*config.trainer.exchange.wire)},
                                {"optimizer_state", state_location(assembly.config.trainer.exchange)},
                                {"communicator", assembly.communicator->description()},
                                {"ranks", world.size()},
                                {"parts", config.trainer.num_parts},
                                {"threads", config.trainer.threads},
                                {"oversubscribed", !has_room_for(assembly.cores, world, config.trainer.threads)},
                                {"seed", static_cast<std::int64_t>(config.trainer.seed)},
                                {"model", assembly.network->spec().name},
                                {"parameters", assembly.network->layout().parameters()},
                                {"data", config.data.train},
                                {"data_digest", digest_text(assembly.data_digest)},
                                {"train_samples", assembly.data.train->info().samples},
                                {"test_samples", assembly.data.test ? assembly.data.test->info().samples : 0},
                                {"batch_size", config.trainer.batch_size},
                                {"optimizer", name_of(config.trainer.optimizer.kind)},
                                {"lr", config.trainer.learning_rate.base},
                                {"warmup_epochs", config.trainer.learning_rate.warmup_epochs},
                                {"momentum", config.trainer.optimizer.momentum},
                                {"weight_decay", config.trainer.optimizer.weight_decay},
                                {"host", world.host()},
                                {"startup_seconds", seconds_since_process_start()},
                                {"configuration", config_text(config)},
                                {"step", run.steps_done}};
  if (!run.resumed_from.empty()) record["resumed_from"] = run.resumed_from;
  if (!config.rehearse.empty()) record["rehearse"] = config.rehearse;
  return json_line(record);
}

}  // namespace

void log_start(const Assembly& assembly, World& world, const Trainer& trainer, const Log& log) {
  const auto hosts = all_gather_text(world, world.host());
  const auto num_hosts = static_cast<std::int64_t>(std::set<std::string>(hosts.begin(), hosts.end()).size());
  const RunConfig& config = assembly.config;
  const DatasetInfo& data = assembly.data.train->info();
  const std::int64_t test_samples = assembly.data.test ? assembly.data.test->info().samples : 0;
  const Wire wire = config.trainer.exchange.wire.value();
  log.info(versions_text(*assembly.processor.backend, world));
  log.info(fmt::format("{} on {}, {} of {} cores usable here, {} per part{}", plural(world.size(), "rank"),
                       plural(num_hosts, "host"), assembly.cores.usable, assembly.cores.present,
                       plural(config.trainer.threads, "thread"),
                       trainer.workers() > 1 ? fmt::format(", {} concurrent parts per rank", trainer.workers()) : ""));
  log.info(fmt::format(
      "batch {} = {} of {} images, exchange {}{} ({}), optimizer state {}", config.trainer.batch_size,
      plural(config.trainer.num_parts, "part"), part_size_text(config), name_of(*config.exchange),
      wire == default_wire(*config.exchange, config.trainer.num_parts) ? "" : fmt::format(" in {}", name_of(wire)),
      assembly.communicator->description(), state_location(assembly.config.trainer.exchange)));
  const Shape& image = assembly.config.trainer.recipe.image;
  const std::string from =
      image == data.image ? "" : fmt::format(" from {}", data.sizes_differ() ? "several sizes" : data.image.text());
  log.info(fmt::format("{}: {} training and {} test images of {}{}, {} classes", data.name, data.samples, test_samples,
                       image.text(), from, data.classes));
  if (test_samples == 0)
    log.info("no test set: hold one out with --validation-ratio 0.1, or give one with --test-data");
  log.info(fmt::format("{}: {} parameters, {:.2f} million multiply-adds per image, precision {}, {} planned",
                       assembly.network->spec().name, assembly.network->layout().parameters(),
                       static_cast<double>(assembly.network->multiply_adds()) / 1e6,
                       name_of(*config.processor.precision), plural(trainer.planned_steps(), "step")));
  const std::string search =
      assembly.processor.is_gpu() ? load_cuda_libraries().cuda.search_summary(*assembly.processor.backend) : "";
  for (const std::string& of_rank : all_gather_text(world, search)) {
    if (!of_rank.empty()) log.info(of_rank);
  }
  const std::size_t data_bytes =
      assembly.data.train->resident_bytes() + (assembly.data.test ? assembly.data.test->resident_bytes() : 0);
  log.info(fmt::format("memory about {:.0f} MiB of network per rank and {:.0f} MiB of data per host",
                       mebi(trainer.memory_bytes()), mebi(data_bytes)));
  if (config.output.folder.empty()) return;
  log.info(fmt::format(
      "checkpoints in {}/checkpoints: {}; {} kept{}", config.output.folder,
      checkpoint_every_text(config.output.checkpoint_every),
      config.output.keep_checkpoints == 0 ? "all" : fmt::format("the newest {}", config.output.keep_checkpoints),
      config.trainer.checkpoint_at_best && test_samples > 0 && config.output.keep_checkpoints != 0
          ? ", and that of the best evaluation"
          : ""));
}

std::string versions_text(const Backend& backend, const World& world) {
  return fmt::format("tutti {}; {}; {}; HDF5 {}", version(), backend.description(), world.description(),
                     array_library_version());
}

RunOutput::RunOutput(World& world, const ReportedRun& run)
    : world_(world), run_(run), log_(world.rank(), world.host(), run.assembly.config.output.quiet) {
  const RunConfig& config = run.assembly.config;
  if (const auto& shard = config.trainer.file_shard; run.folder != nullptr && shard) {
    writer_.emplace(run.folder->store, WriterOptions{.shard = *shard,
                                                     .keep_checkpoints = config.output.keep_checkpoints,
                                                     .keep_best = config.trainer.checkpoint_at_best});
  }
  if (run.keeps_states) keep_steps_ = config.output.keep_steps.steps;
  if (run.keeps_states && !run.kept->folder().empty()) {
    run.kept->begin(run.steps_done);
    keeper_.emplace(run.kept->store(), WriterOptions{.keep_checkpoints = 2});
  }
  if (world.rank() != 0) return;
  if (draws_progress(config)) bar_.emplace();
  prints_lines_ = !bar_ && config.output.progress != ShowProgress::never && !config.output.quiet;
  if (run.folder != nullptr) {
    metrics_.emplace(config.output.folder + "/metrics.jsonl",
                     [folder = run.folder->owned] { return folder.loss_reason().empty(); });
  }
  if (!config.output.sample_log.empty()) {
    sample_log_.emplace(config.output.sample_log, run.steps_done > 0 ? EarlierLines::kept : EarlierLines::dropped);
  }
  record_line(run_record(world, run));
  if (metrics_) launch_ = metrics_->hash();
}

// A failing disk is reported once, not at every record.
void RunOutput::record(const std::function<void()>& write) {
  try {
    write();
  } catch (const Error& error) {
    if (error.source() != ErrorSource::save) throw;
    if (!warned_of_.insert(error.what()).second) return;
    if (bar_) bar_->clear();
    log_.warn(fmt::format("a record is lost, and training continues: {}", error.what()));
  }
}

void RunOutput::record_line(const std::string& json) {
  if (bar_) bar_->clear();
  if (metrics_) record([&] { metrics_->on_line(json); });
}

void RunOutput::finish(RunEnd end, const Trainer& trainer) {
  if (bar_) bar_->clear();
  const std::string early = trainer.steps_done() < trainer.planned_steps() ? trainer.early_end() : "";
  if (!early.empty()) log_.info(fmt::format("the run ends early: {}", early));
  const std::int64_t skipped_steps = trainer.skipped_steps();
  if (skipped_steps > 0) log_.info(plural(skipped_steps, "step") + " skipped (--on-nonfinite skip)");
  if (!run_.assembly.config.output.folder.empty()) finish_saves();
  if (run_.kept != nullptr) finish_kept();
  print_time();
  nlohmann::ordered_json json{
      {"event", "end"}, {"step", trainer.steps_done()}, {"status", end == RunEnd::planned ? "done" : "stopped"}};
  if (!early.empty()) json["reason"] = early;
  record_line(json_line(json));
}

// Prints nothing if the only epoch of the run has printed the same.
void RunOutput::print_time() {
  if (epochs_.empty() || (epochs_.size() == 1 && has_printed_time_)) return;
  const TimeReport whole = time_.report();
  print_times(whole, rates_of(whole, images_), run_.steps_done > 0 ? "this invocation: " : "whole run: ");
}

// Of the images trained on in that time. Collective.
InputRates RunOutput::rates_of(const TimeReport& time, std::int64_t images) const {
  const TimeShares mean = time.mean();
  const double training =
      mean.sum() - mean[TimeShare::data] - mean[TimeShare::evaluation] - mean[TimeShare::checkpoint];
  const double of_rank = static_cast<double>(images) / world_.size();
  return input_rates(world_, epochs_.back().prepared, training > 0 ? of_rank / training : 0);
}

// Images that need no decoding are prepared in no time.
void RunOutput::print_times(const TimeReport& time, const InputRates& input, const char* of_what) {
  on_note(of_what + time_line(time));
  if (!run_.assembly.data.train->is_encoded()) return;
  on_note(rates_text(input, run_.assembly.processor.all_on_gpus));
}

BoundaryAction RunOutput::at_boundary(std::int64_t step) {
  report_saves();
  report_kept();
  const BoundaryAction action = run_.control.at_boundary();
  const bool keeps = action == BoundaryAction::proceed && keep_steps_ > 0 && step % keep_steps_ == 0;
  return keeps ? BoundaryAction::keep : action;
}

// A line of the sample log: {"step":k,"epoch":e,"parts":[[samples]..]}.
void RunOutput::on_samples(const SampleReport& report) {
  if (!sample_log_) return;
  const nlohmann::ordered_json json{{"step", report.step}, {"epoch", report.epoch}, {"parts", report.parts}};
  record([&] { sample_log_->append(json.dump()); });
}

void RunOutput::on_step(const StepProgress& progress) {
  images_ += progress.samples;
  lines_.count(progress);
  if (bar_) bar_->draw(progress);
  if (prints_lines_ && lines_.is_due(since_start_.seconds())) {
    const TrainSums loss = progress.rank_loss();
    on_note(lines_.text(since_start_.seconds(), loss) + (world_.size() > 1 ? " (loss of rank 0's images)" : ""));
  }
  run_.time_profile.count_step();
}

void RunOutput::on_note(const std::string& text) {
  if (bar_) bar_->clear();
  log_.info(text);
}

// Further ones are only counted.
void RunOutput::on_skipped(const SkippedReport& report) {
  constexpr std::int64_t kMaxNotes = 10;
  if (metrics_) record([&] { metrics_->on_skipped(report); });
  if (report.in_all > kMaxNotes) return;
  on_note(fmt::format("{}: step skipped{}", report.finding,
                      report.in_all == kMaxNotes ? "; further ones will only be counted" : ""));
}

void RunOutput::on_interval(const IntervalReport& report) {
  if (metrics_) record([&] { metrics_->on_interval(report); });
  on_note(lines_.text(since_start_.seconds(), report.train));
}

void RunOutput::on_digest(const DigestReport& report) {
  if (metrics_) record([&] { metrics_->on_digest(report); });
}

void RunOutput::on_epoch(const EpochReport& report) {
  if (bar_) bar_->clear();
  if (world_.rank() == 0) {
    fmt::print("{}\n", epoch_line(report));
    std::fflush(stdout);
    const std::string guessing =
        not_learning_warning(report, run_.assembly.network->classes(), run_.assembly.config.trainer.learning_rate);
    if (!guessing.empty() && warned_of_.insert("a network that does not learn").second) log_.warn(guessing);
    if (stdout_failure() != 0 && !stdout_is_abandoned() && warned_of_.insert("stdout").second) {
      log_.warn(fmt::format("cannot write to stdout: {}; training continues, and ends with status 73",
                            std::strerror(stdout_failure())));
    }
  }
  if (metrics_) record([&] { metrics_->on_epoch(report); });
}

void RunOutput::on_divergence(const DivergenceReport& report) {
  if (metrics_) record([&] { metrics_->on_divergence(report); });
}

void RunOutput::on_wrong_part(const WrongPartReport& report) {
  if (metrics_) record([&] { metrics_->on_wrong_part(report); });
  if (run_.kept != nullptr) finish_kept();  // the states may be wrong, too
  if (world_.rank() != 0) return;
  const auto host_of = [&](int rank) { return run_.hosts.at(static_cast<std::size_t>(rank)); };
  ExitRecord end{.status = ExitStatus::diverged,
                 .rank = report.ranks.front(),
                 .host = host_of(report.ranks.front()),
                 .reason = report.text,
                 .last_confirmed_step = report.repeats ? std::optional(report.last_confirmed_step) : std::nullopt,
                 .at = StepPhase{report.step, report.pass}};
  for (const int wrong : report.ranks) {
    if (report.is_decided && std::ranges::count(end.exclude, host_of(wrong)) == 0)
      end.exclude.push_back(host_of(wrong));
  }
  if (run_.folder != nullptr) write_exit_record(run_.folder->owned, end);
}

void RunOutput::on_checkpoint(TrainState state, double copy_seconds) {
  run_.control.on_snapshot();
  if (!writer_) return;
  const Stopwatch watch;
  const std::int64_t step = state.progress.step;
  if (metrics_) state.metrics_hash = metrics_->hash();
  writer_->save(std::move(state));
  stalls_.push_back({step, copy_seconds + watch.seconds()});
}

void RunOutput::on_kept(TrainState state, double copy_seconds) {
  if (kept_pauses_.empty()) launch_ = broadcast_text(world_, launch_, 0);
  const Stopwatch watch;
  state.metrics_hash = launch_;
  if (keeper_) keeper_->save(std::move(state));
  kept_pauses_.push_back(copy_seconds + watch.seconds());
}

// The thread that writes the state has a low priority, but takes the time of a core.
void RunOutput::report_kept() {
  if (!keeper_) return;
  for (const SaveReport& report : keeper_->take_reports()) {
    run_.control.kept(kept_pauses_.back() + report.cpu_seconds);
    // Each failure names another file.
    if (report.failure.empty() || !warned_of_.insert("a state in memory").second) continue;
    log_.warn(fmt::format("the state after step {} is not kept in memory, and training continues: {}", report.step,
                          report.failure));
  }
}

// The run's last state is in its folder.
void RunOutput::finish_kept() {
  if (keeper_) {
    keeper_->finish();
    report_kept();
  }
  run_.kept->remove();
  if (kept_pauses_.empty()) return;
  log_.info(fmt::format("{} kept in memory: median pause of the training {:.3f} s, longest pause {:.3f} s",
                        plural(kept_pauses_.size(), "state"), quartiles_of(kept_pauses_).median,
                        std::ranges::max(kept_pauses_)));
}

// Records the saves since the last call, and logs failures.
void RunOutput::report_saves() {
  if (!writer_) return;
  for (const SaveReport& save : writer_->take_reports()) report_save(save);
}

void RunOutput::report_save(const SaveReport& report) {
  const auto stall = std::ranges::find(stalls_.rbegin(), stalls_.rend(), report.step, &Stall::step);
  const double stall_seconds = stall == stalls_.rend() ? 0 : stall->seconds;
  record_line(record_of(report, stall_seconds));
  if (!report.evicted_steps.empty()) {
    log_.warn(fmt::format("evicted {} of step {} to free space for step {}: {}",
                          plural(report.evicted_steps.size(), "checkpoint"), fmt::join(report.evicted_steps, ", "),
                          report.step, report.eviction_reason));
  }
  if (report.failure.empty()) {
    good_saves_.push_back(report.seconds);
    saved_bytes_ = report.bytes;
    run_.control.saved(report.seconds + stall_seconds);
  } else {
    last_failure_ = report.failure;
    if (run_.assembly.config.output.on_save_failure == OnSaveFailure::stop) {
      run_.control.end_for(
          fmt::format("the checkpoint of step {} could not be saved, and --on-save-failure is stop: {}", report.step,
                      report.failure));
    } else {
      log_.warn(fmt::format("checkpoint of step {} is not saved; earlier ones, if any, are kept: {}", report.step,
                            report.failure));
    }
  }
  if (!report.prune_failure.empty()) log_.warn(report.prune_failure);
}

// Waits until the newest state is saved, and logs the cost of the checkpoints.
void RunOutput::finish_saves() {
  run_or_throw_on_all(world_, [&] {
    if (!writer_) return;
    report_saves();
    writer_->finish();
    report_saves();
    if (writer_->newest_is_saved()) return;
    throw Error(ErrorSource::save, fmt::format("the last state could not be saved: {}", last_failure_));
  });
  if (good_saves_.empty()) return;
  std::vector<double> stalls;
  for (const Stall& stall : stalls_) stalls.push_back(stall.seconds);
  log_.info(
      fmt::format("{} of {:.1f} MiB saved in {}/checkpoints: median save time {:.3f} s (in the background), "
                  "median pause of the training {:.3f} s, longest pause {:.3f} s",
                  plural(good_saves_.size(), "checkpoint"), mebi(saved_bytes_), run_.assembly.config.output.folder,
                  quartiles_of(good_saves_).median, quartiles_of(stalls).median, std::ranges::max(stalls)));
}

void RunOutput::on_epoch_end(const EpochEnd& end) {
  epochs_.push_back(end);
  const TimeReport time = run_.time_profile.report();
  time_.add(time);
  const InputRates input = rates_of(time, images_ - std::exchange(images_before_, images_));
  has_printed_time_ = is_notable(time);
  if (has_printed_time_) print_times(time, input);
  if (metrics_) record([&] { metrics_->on_time(end, time, input); });
}

}  // namespace tutti
