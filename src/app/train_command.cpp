#include "train_command.hpp"

#include "tutti/base/digest.hpp"
#include "tutti/base/error.hpp"
#include "tutti/nn/model_file.hpp"
#include "tutti/storage/checkpoint_store.hpp"
#include "tutti/storage/whole_file.hpp"
#include "tutti/watch/rehearsal.hpp"

#include "option_table.hpp"
#include "plural.hpp"
#include "preflight/agreement.hpp"
#include "preflight/machine.hpp"
#include "preflight/memory.hpp"
#include "preflight/out_folder.hpp"
#include "process.hpp"
#include "processors.hpp"
#include "resolve_options.hpp"
#include "run_control.hpp"
#include "run_folder.hpp"
#include "run_record.hpp"
#include "run_reporter.hpp"
#include "run_start.hpp"
#include "trace_file.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace tutti {
namespace {

void save_resolved_options(World& world, const RunConfig& config, const OwnedFolder& folder) {
  run_agreed(world, [&] {
    if (world.rank() != 0) return;
    folder.require();
    const std::string text = config_text(config);
    write_whole(config.out + "/config.toml", std::as_bytes(std::span(text)));
  });
}

void tell_end(const Trainer& trainer, std::uint64_t digest, const RunConfig& config, const Log& log) {
  log.note(fmt::format("done after {}, weights {}", plural(trainer.steps_done(), "step"), digest_text(digest)));
  if (const std::int64_t left = trainer.samples_left_over(); left > 0) {
    log.note(fmt::format("{} samples of the last epoch were dealt to no step (--last-batch {})", left,
                         name_of(config.last_batch)));
  }
}

RunLimits limits_of(const Assembly& assembly, const OwnedFolder& folder) {
  return {.save_every = assembly.config.checkpoint_every->seconds,
          .time_limit = *assembly.config.time_limit,
          .checkpoint_bytes = static_cast<std::int64_t>(most_state_bytes(*assembly.network)),
          .folder = folder};
}

std::string beginning_text(const LoadedCheckpoint& weights, const std::vector<std::string>& drawn) {
  return fmt::format("begins with the weights of {}, after its {}{}", weights.path,
                     plural(weights.state.progress.step, "step"),
                     drawn.empty() ? "" : fmt::format("; drawn anew: {}", fmt::join(drawn, ", ")));
}

// What nobody could resume from is refused before anything is trained.
void refuse_unreadable(const RunFacts& facts, const Network& network) {
  LoadedCheckpoint first{.state = {}, .path = "this run's first"};
  first.state.configuration = facts.configuration;
  first.state.command_line = facts.command_line;
  first.state.model = facts.model;
  first.state.versions = facts.versions;
  first.state.data = facts.data;
  for (const ParameterSlice& slice : network.layout().slices()) {
    first.state.parameters.push_back({slice.name, Shape{0}, {}});
    first.state.optimizer.push_back({"second_moment/" + slice.name, Shape{0}, {}});  // no optimizer has a longer name
  }
  try {
    check_readable(first.state);
    RunConfig read;
    std::set<std::string> given;
    read_config_text(facts.configuration, "its options", read, given);
    parse_model(facts.model, "its model");
    static_cast<void>(trained_on(first));
  } catch (const Error& error) {
    throw Error(ErrorSource::input, fmt::format("the checkpoints of this run could not be read again: {}; give another "
                                                "--model, or other options",
                                                error.what()));
  }
}

// Everything of one run between its assembly and its end.
class TrainRun {
 public:
  TrainRun(World& world, Assembly& assembly, RankStatus& rank_status, const Log& log)
      : world_(world), assembly_(assembly), rank_status_(rank_status), log_(log), digests_(digests_of(assembly.data)) {}

  // The digests are those of its data.
  void go_on_from(LoadedCheckpoint& resumed, const DataDigests& digests) {
    resumed_ = &resumed;
    digests_ = digests;
  }

  // Keeps what it has trained in the folder, and stops for its signals.
  void keep_in(const RunFolder& folder, const StopSignals& signals) {
    const auto share = file_share(world_, most_state_bytes(*assembly_.network));
    assembly_.options.file_share = share;
    control_.emplace(world_, signals, limits_of(assembly_, folder.owned()));
    checkpoints_.emplace(world_, assembly_.config, folder.store(), share, *control_);
    save_resolved_options(world_, assembly_.config, folder.owned());
    folder_ = folder.owned();
  }

  // Keeps nothing, and stops for its signals.
  void stop_for(const StopSignals& signals) { control_.emplace(world_, signals, RunLimits{}); }

  // Begins with the weights of another run.
  void begin_with(LoadedCheckpoint weights) { weights_ = std::move(weights); }

  // Why it stopped; empty when it came to its end. Collective.
  std::string train(const Invocation& invocation);

 private:
  void build(const Invocation& invocation);
  std::vector<std::string> start_from_weights();
  void begin_rehearsal();

  World& world_;
  Assembly& assembly_;
  RankStatus& rank_status_;
  LoadedCheckpoint* resumed_ = nullptr;
  std::optional<LoadedCheckpoint> weights_{};
  const Log& log_;
  DataDigests digests_;
  OwnedFolder folder_;
  std::optional<RunControl> control_;
  std::optional<CheckpointKeeping> checkpoints_;
  std::optional<Rehearsal> rehearsal_;
  std::optional<Trainer> trainer_;
};

std::vector<std::string> TrainRun::start_from_weights() {
  try {
    return trainer_->start_from(weights_->state);
  } catch (const Error& error) {
    const auto trained = trained_on(*weights_);
    const std::int64_t channels = assembly_.network->sample()[0];
    if (error.source() != ErrorSource::input || !trained || trained->image[0] == channels) throw;
    throw Error(
        ErrorSource::input,
        fmt::format("--init-from {}: the images have {}, the checkpoint's had {}; give images with as many ({})",
                    weights_->path, plural(channels, "channel"), trained->image[0], error.what()));
  }
}

void TrainRun::build(const Invocation& invocation) {
  const RunConfig& config = assembly_.config;
  const RunFacts facts{.configuration = config_text(config),
                       .command_line = fmt::format("{}", fmt::join(invocation.words, " ")),
                       .model = model_text(assembly_.network->spec()),
                       .versions = versions_text(*assembly_.backend, world_),
                       .data = trained_on_text(*assembly_.network, assembly_.data.train->info(), digests_),
                       .data_digest = assembly_.data_digest};
  if (checkpoints_) run_agreed(world_, [&] { refuse_unreadable(facts, *assembly_.network); });
  assembly_.options.reports_samples = world_.rank() == 0 && !config.sample_log.empty();  // it alone writes them
  if (!config.rehearse.empty()) {
    rehearsal_.emplace(log_);
    assembly_.communicator = rehearsal_->between(std::move(assembly_.communicator));
  }
  const auto hosts = all_gather_text(world_, world_.host());
  std::vector<std::string> drawn;
  build_alike(world_, config, *assembly_.backend, [&] {
    TrainerParts parts = assembly_.parts();
    parts.rank_status = &rank_status_;
    parts.hosts = hosts;
    trainer_.emplace(parts, assembly_.options, facts);
    if (resumed_ != nullptr) trainer_->restore(resumed_->state);
    if (weights_) drawn = start_from_weights();
  });
  log_start(assembly_, world_, *trainer_, log_);
  const bool has_steps_left = trainer_->steps_done() < trainer_->planned_steps();
  if (resumed_ != nullptr) {
    const RateAtResume rate{resumed_->state.progress.learning_rate, trainer_->learning_rate()};
    log_.note(fmt::format(
        "going on from {}: {} of {} steps done{}", resumed_->path, trainer_->steps_done(), trainer_->planned_steps(),
        has_steps_left ? fmt::format(", learning rate {:.3g} before, {:.3g} now", rate.before, rate.now) : ""));
    const bool is_chosen = invocation.given.contains("schedule-epochs");
    const std::string moved = is_chosen ? "" : moved_schedule_text(config, *resumed_, rate);
    if (world_.rank() == 0 && has_steps_left && !moved.empty()) log_.warn(moved);
    resumed_->state = {};
  }
  if (const std::string late = late_schedule_text(config); !late.empty()) log_.note(late);
  if (weights_) log_.note(beginning_text(*weights_, drawn));
  weights_.reset();
  if (!has_steps_left) {
    log_.note(fmt::format("nothing left to do: {} done, {} planned; --epochs or --steps makes the run longer",
                          plural(trainer_->steps_done(), "step"), trainer_->planned_steps()));
  }
}

// The last thing before the run, so that no incident meets ranks that are still being made.
void TrainRun::begin_rehearsal() {
  std::vector<Incident> incidents;
  run_agreed(world_, [&] {
    incidents =
        plan_incidents(assembly_.config.rehearse, {.ranks = world_.size(),
                                                   .steps = {trainer_->steps_done() + 1, trainer_->planned_steps()},
                                                   .buckets = std::ssize(trainer_->replica().bucket_ends()),
                                                   .tensors = trainer_->replica().local_tensors()});
  });
  for (const Incident& incident : incidents) {
    if (world_.rank() == 0) log_.warn(fmt::format("rehearsal: {}", text_of(incident)));
  }
  rank_status_.add(*rehearsal_);
  // A bit turns where this thread comes to its place, not once a GPU is found to have gone past it.
  if (std::ranges::count(incidents, IncidentKind::flip, &Incident::kind) > 0) rank_status_.reach_through(nullptr);
  rehearsal_->begin(incidents, [this](const BitFlip& flip) { trainer_->replica().flip(flip); });
}

std::string TrainRun::train(const Invocation& invocation) {
  build(invocation);
  if (rehearsal_) begin_rehearsal();
  TimeAccount account(world_, rank_status_);
  std::optional<TraceFile> trace;
  if (!assembly_.config.trace.empty()) trace.emplace(world_, rank_status_, assembly_.config.trace);
  std::optional<RunReporter> reporter;
  run_agreed(world_, [&] {
    reporter.emplace(world_, ReportedRun{.assembly = assembly_,
                                         .control = *control_,
                                         .account = account,
                                         .checkpoints = checkpoints_ ? &*checkpoints_ : nullptr,
                                         .folder = folder_,
                                         .resumes = resumed_ != nullptr});
  });
  const std::int64_t steps = trainer_->steps_done();
  reporter->start(run_record(assembly_, world_, invocation.words, steps), steps);
  RunEnd end = RunEnd::planned;
  end_together(world_, [&] { end = trainer_->run(*reporter); });
  rank_status_.enter(Phase::ending);
  if (rehearsal_) {
    for (const Incident& missed : rehearsal_->missed()) {
      log_.warn(fmt::format("rehearsal: it never came to this: {}", text_of(missed)));
    }
  }
  const std::uint64_t digest = trainer_->weights_digest();
  reporter->finish(end, trainer_->steps_done(), trainer_->skipped_steps());
  if (trace) trace->write(reporter->epochs(), log_);
  if (end == RunEnd::stopped && !checkpoints_) {
    return fmt::format("stopped by {} after {}; without --out nothing is saved", control_->reason(),
                       plural(trainer_->steps_done(), "step"));
  }
  if (end == RunEnd::stopped) {
    return fmt::format("stopped by {} with {} of {} steps done and saved; --resume goes on from there",
                       control_->reason(), trainer_->steps_done(), trainer_->planned_steps());
  }
  tell_end(*trainer_, digest, assembly_.config, log_);
  return {};
}

// Whoever judges leaves the note, beside ranks that may be stuck anywhere.
void leave_note_in(const OwnedFolder& folder, StallWatch& watch) {
  watch.report_end_to([folder](const StallReport& report) {
    leave_exit_record(folder, {.status = ExitStatus::hang,
                               .rank = report.rank,
                               .host = report.host,
                               .reason = report.reason,
                               .at = report.at});
  });
}

// What has been found of the process's limits before is not told again. Collective.
Findings judge_memory_of(World& world, const Assembly& assembly, const Findings& early) {
  const bool on_gpu = assembly.backend->memory_space() != MemorySpace::host;
  const JobMemory memory = judge_job_memory(world, memory_request(assembly, world, {}), Machine(), on_gpu);
  Findings found;
  for (const Finding& finding : memory.findings.all()) {
    if (std::ranges::find(early.all(), finding) == early.all().end()) found.add(finding);
  }
  return found;
}

}  // namespace

ExitStatus train_command(World& world, const Invocation& invocation, EndRecord& record) {
  RunConfig config = invocation.run;
  const Log log(world.rank(), world.host(), config.quiet);
  RankStatus rank_status;
  if (record.watch != nullptr) rank_status.publish_in(record.watch->status_slot());
  run_agreed(world, [&] { refuse_without_out(config); });
  Obstacles obstacles(world, log);
  const Findings early = preflight_in_brief(world, config);
  obstacles.add(early);
  std::optional<RunFolder> folder;
  if (!config.out.empty() && !config.dry_run) {
    folder.emplace(world, config, log);
    if (world.local_size() < world.size()) obstacles.add(judge_sharing(world, config.out, false));
    record.folder = folder->owned();
    if (record.watch != nullptr) leave_note_in(folder->owned(), *record.watch);
  }
  const Damaged damaged = config.dry_run ? Damaged::left : Damaged::marked;
  RunStart start = find_start(world, config, invocation.given, damaged, obstacles, log);
  if (start.resumed && record.watch != nullptr) record.watch->set_timeout(config.stall_timeout);
  if (!config.dry_run) obstacles.add(judge_files(world, config));
  Assembly assembly = assemble_run(world, config, start, false, obstacles, log);
  if (config.dry_run) {
    if (world.rank() == 0) fmt::print("{}", config_text(assembly.config));
    return ExitStatus::done;
  }
  judge_run(world, assembly, start, obstacles);
  obstacles.add(judge_memory_of(world, assembly, early));
  const AbandonAtEnd abandoning(record.watch, *assembly.communicator);
  TrainRun run(world, assembly, rank_status, log);
  if (start.resumed) run.go_on_from(*start.resumed, start.digests);
  if (start.weights) run.begin_with(*std::exchange(start.weights, std::nullopt));
  if (folder) run.keep_in(*folder, *record.signals);
  if (!folder) run.stop_for(*record.signals);
  record.reason = run.train(invocation);
  return record.reason.empty() ? ExitStatus::done : ExitStatus::stopped;
}

}  // namespace tutti
