#include "tutti/base/digest.hpp"
#include "tutti/base/error.hpp"
#include "tutti/nn/model_file.hpp"
#include "tutti/storage/atomic_file.hpp"
#include "tutti/storage/checkpoint_store.hpp"
#include "tutti/watch/rehearsal.hpp"

#include "commands.hpp"
#include "kept_states.hpp"
#include "option_table.hpp"
#include "output.hpp"
#include "plan_choices.hpp"
#include "preflight/agreement.hpp"
#include "preflight/memory.hpp"
#include "preflight/out_folder.hpp"
#include "processors.hpp"
#include "run_config.hpp"
#include "run_control.hpp"
#include "run_folder.hpp"
#include "run_reports.hpp"
#include "run_start.hpp"
#include "scoring.hpp"
#include "streams_and_signals.hpp"
#include "trace_file.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace tutti {
namespace {

bool schedule_ends_with_invocation(const RunConfig& config) {
  return config.trainer.schedule_epochs == kScheduleOfInvocation && config.trainer.steps > 0;
}

std::int64_t schedule_epochs(const RunConfig& config) {
  return config.trainer.schedule_epochs > 0 ? config.trainer.schedule_epochs : config.trainer.epochs;
}

std::string schedule_end_text(const RunConfig& config) {
  return schedule_ends_with_invocation(config) ? fmt::format("step {}", config.trainer.steps)
                                               : fmt::format("epoch {}", schedule_epochs(config));
}

// A warning if the end of the schedule has moved, which makes the learning rate jump from `rate_before` to `rate`, or
// the decay of --lookahead; else empty. It suggests the old end only if that leaves no epochs at a learning rate of 0.
std::string moved_schedule_text(const RunConfig& config, const LoadedCheckpoint& resumed, double rate) {
  const double rate_before = resumed.state.progress.learning_rate;
  const RunConfig before = merge_for_resume({}, resumed.state.configuration, resumed.path);
  const bool moves_rate = has_end(config.trainer.learning_rate.schedule);
  if (!moves_rate && config.trainer.average.lookahead == 0) return {};
  if (schedule_end_text(config) == schedule_end_text(before)) return {};
  const bool is_over = resumed.state.progress.epoch >= schedule_epochs(before);
  const bool would_stop = config.trainer.learning_rate.min == 0 && config.trainer.epochs > schedule_epochs(before);
  const bool can_keep = !schedule_ends_with_invocation(before) && !(moves_rate && (is_over || would_stop));
  return fmt::format(
      "the {} ends at {} now, not at {}, so {}; {}",
      moves_rate ? fmt::format("{} schedule", name_of(config.trainer.learning_rate.schedule)) : "ramp of --lookahead",
      schedule_end_text(config), schedule_end_text(before),
      moves_rate ? fmt::format("the learning rate jumps from {:.3g} to {:.3g}", rate_before, rate)
                 : "the decay of the average jumps",
      can_keep ? fmt::format("to avoid that, give --schedule-epochs {}", schedule_epochs(before))
               : fmt::format("for another schedule, start a new run with --init-from {}", resumed.path));
}

// A note if epochs follow the end of a schedule, at the minimum learning rate; else empty.
std::string late_schedule_text(const RunConfig& config) {
  if (!has_end(config.trainer.learning_rate.schedule) || config.trainer.learning_rate.min == 0 ||
      schedule_epochs(config) >= config.trainer.epochs)
    return {};
  return fmt::format("the {} schedule ends at {}: the learning rate is {:g} from there to epoch {}",
                     name_of(config.trainer.learning_rate.schedule), schedule_end_text(config),
                     config.trainer.learning_rate.min, config.trainer.epochs);
}

RunLimits limits_of(const Assembly& assembly, const OwnedFolder& folder, bool keeps) {
  return {.save_every = assembly.config.output.checkpoint_every.seconds,
          .keeps = keeps && assembly.config.output.keep_steps.is_automatic,
          .time_limit = assembly.config.output.time_limit,
          .checkpoint_bytes = static_cast<std::int64_t>(max_state_bytes(*assembly.network)),
          .folder = folder};
}

// Refuses a run whose checkpoints could not be loaded again, before anything is trained.
void refuse_unreadable(const RunMetadata& facts) {
  LoadedCheckpoint first{.state = {}, .path = "this run's first"};
  first.state.data = facts.data;
  try {
    read_config_text(facts.configuration, "its options");
    parse_model(facts.model, "its model");
    static_cast<void>(trained_on(first));
  } catch (const Error& error) {
    throw Error(ErrorSource::input, fmt::format("the checkpoints of this run could not be read again: {}; give another "
                                                "--model, or other options",
                                                error.what()));
  }
}

// One run, from its assembly to its end. Signals stop it, and it saves checkpoints if it has a folder.
class TrainRun {
 public:
  // All are borrowed; the folder and the kept states may be null. The checkpoints in `start` are freed once the trainer
  // has their state. Collective.
  TrainRun(World& world, Assembly& assembly, RunStart& start, const DataDigests& digests,
           const std::vector<std::string>& hosts, RankStatus& rank_status, const Log& log, const StopSignals& signals,
           const RunFolder* folder, const KeptStates* kept, bool keeps_states)
      : world_(world),
        assembly_(assembly),
        start_(start),
        digests_(digests),
        hosts_(hosts),
        rank_status_(rank_status),
        log_(log),
        folder_(folder),
        kept_(kept),
        keeps_states_(keeps_states),
        control_(world, signals, folder == nullptr ? RunLimits{} : limits_of(assembly, folder->owned, keeps_states)) {
    if (folder == nullptr) return;
    on_rank_0(world, [&] {
      folder->owned.require();
      if (const std::string other = start.resumed ? "" : other_run_text(assembly.config); !other.empty())
        log.warn(other);
      const std::string text = config_text(assembly.config);
      write_atomically(options_file(assembly.config.output.folder), std::as_bytes(std::span(text)));
    });
  }

  // Returns why the run stopped; empty if it was completed. Collective.
  std::string train(const Invocation& invocation);

 private:
  void build(const Invocation& invocation);
  void log_resumed(bool has_chosen_schedule);
  void inject_faults();
  void log_best() const;
  std::string device_text() const;
  void log_lone_audits(const std::vector<std::string>& devices) const;

  World& world_;
  Assembly& assembly_;
  RunStart& start_;
  const DataDigests& digests_;
  const std::vector<std::string>& hosts_;  // by rank
  RankStatus& rank_status_;
  const Log& log_;
  const RunFolder* folder_;
  const KeptStates* kept_;
  bool keeps_states_;
  RunControl control_;
  std::optional<FaultInjector> fault_injector_;
  std::unique_ptr<Backend> rehearsed_backend_;  // null: the assembly's is used
  std::optional<Trainer> trainer_;
};

// This rank's processor, without libraries, and the number of its GPU.
std::string TrainRun::device_text() const {
  const std::string description = assembly_.processor.backend->description();
  const std::string name = description.substr(0, description.find(','));
  return assembly_.processor.is_gpu() ? fmt::format("{}, GPU {}", name, assembly_.processor.device) : name;
}

void TrainRun::build(const Invocation& invocation) {
  const RunConfig& config = assembly_.config;
  const RunMetadata facts{.configuration = config_text(config),
                          .command_line = fmt::format("{}", fmt::join(invocation.arguments, " ")),
                          .model = model_text(assembly_.network->spec()),
                          .versions = versions_text(*assembly_.processor.backend, world_),
                          .data = trained_on_text({.image = assembly_.network->sample(),
                                                   .classes = assembly_.network->classes(),
                                                   .class_names = assembly_.data.train->info().class_names,
                                                   .keeps_short_side = config.trainer.recipe.keeps_short_side},
                                                  digests_),
                          .data_digest = assembly_.data_digest};
  if (folder_ != nullptr) run_or_throw_on_all(world_, [&] { refuse_unreadable(facts); });
  assembly_.config.trainer.reports_samples =
      world_.rank() == 0 && !config.output.sample_log.empty();  // only rank 0 writes them
  if (!config.rehearse.empty()) {
    fault_injector_.emplace(log_);
    assembly_.communicator = fault_injector_->wrap(std::move(assembly_.communicator));
    if (rehearses_wrong_results(config.rehearse))
      rehearsed_backend_ = fault_injector_->wrap(*assembly_.processor.backend);
  }
  std::vector<std::string> devices;
  if (config.trainer.safeguards.audit_every_steps > 0) {
    devices = all_gather_text(world_, device_text());
    log_lone_audits(devices);
  }
  std::vector<std::string> reinitialized;
  build_with_shared_choices(world_, config.processor, *assembly_.processor.backend, log_, [&] {
    TrainerContext context =
        assembly_.trainer_context(rehearsed_backend_ ? *rehearsed_backend_ : *assembly_.processor.backend);
    context.rank_status = &rank_status_;
    context.hosts = hosts_;
    context.devices = devices;
    trainer_.emplace(context, assembly_.config.trainer, facts);
    if (start_.resumed) trainer_->restore(start_.resumed->state);
    if (start_.weights) reinitialized = trainer_->initialize_from(start_.weights->state, config.new_head);
  });
  log_start(assembly_, world_, *trainer_, log_);
  if (keeps_states_) {
    const KeepInterval& interval = config.output.keep_steps;
    log_.info(fmt::format("the state is kept in the memory of each host {}",
                          interval.is_automatic ? "as often as takes at most 1 % of the time"
                                                : fmt::format("every {}", plural(interval.steps, "step"))));
  }
  if (start_.resumed) log_resumed(config.given.contains("schedule-epochs"));
  if (const std::string late = late_schedule_text(config); !late.empty()) log_.info(late);
  if (start_.weights) {
    log_.info(fmt::format(
        "initialized from {} (step {}){}", start_.weights->path, start_.weights->state.progress.step,
        reinitialized.empty() ? "" : fmt::format("; newly initialized: {}", fmt::join(reinitialized, ", "))));
    if (world_.rank() == 0 && assembly_.data.test) {
      const std::string known = known_images_text(*start_.weights, *assembly_.data.test);
      if (!known.empty()) log_.warn(fmt::format("test set: {}", known));
    }
  }
  start_.weights.reset();
  if (trainer_->steps_done() >= trainer_->planned_steps() && trainer_->early_end().empty()) {
    log_.info(fmt::format("nothing left to do: {} done, {} planned; extend the run with --epochs or --steps",
                          plural(trainer_->steps_done(), "step"), trainer_->planned_steps()));
  }
}

// Ranks are audited by others with the same kind of processor.
void TrainRun::log_lone_audits(const std::vector<std::string>& devices) const {
  std::vector<int> alone;
  for (int rank = 0; rank < world_.size(); ++rank) {
    if (peers_of(rank, world_.size(), devices).size() == 1) alone.push_back(rank);
  }
  if (alone.empty()) return;
  log_.info(
      fmt::format("--audit-every: no other rank has the processor of rank {}, which therefore audits itself: wrong "
                  "results that it repeats are not found",
                  fmt::join(alone, ", ")));
}

void TrainRun::log_resumed(bool has_chosen_schedule) {
  LoadedCheckpoint& resumed = *start_.resumed;
  const bool has_steps_left = trainer_->steps_done() < trainer_->planned_steps();
  const double rate_before = resumed.state.progress.learning_rate;
  const double rate = trainer_->learning_rate();
  log_.info(fmt::format("resuming from {} (step {} of {}){}", resumed.path, trainer_->steps_done(),
                        trainer_->planned_steps(),
                        has_steps_left && rate_before != rate
                            ? fmt::format(", learning rate {:.3g} before, {:.3g} now", rate_before, rate)
                            : ""));
  const std::string moved = has_chosen_schedule ? "" : moved_schedule_text(assembly_.config, resumed, rate);
  if (world_.rank() == 0 && has_steps_left && !moved.empty()) log_.warn(moved);
  resumed.state = {};
}

// Called last before the run, so that no fault is injected while ranks are still being set up.
void TrainRun::inject_faults() {
  std::vector<Fault> faults;
  std::vector<std::string> layers;
  for (const NetworkLayer& layer : assembly_.network->layers()) layers.push_back(layer.name);
  run_or_throw_on_all(world_, [&] {
    const ReplicaState& state = trainer_->replica().state();
    std::vector<FlipTarget> tensors;
    for (const StateTensor& tensor : state.tensors()) tensors.push_back(tensor.target);
    faults = plan_faults(assembly_.config.rehearse, {.ranks = world_.size(),
                                                     .steps = {trainer_->steps_done() + 1, trainer_->planned_steps()},
                                                     .buckets = std::ranges::count(state.ownership().exchanged(), true),
                                                     .tensors = std::move(tensors),
                                                     .layers = layers});
  });
  for (const Fault& fault : faults) {
    if (world_.rank() == 0) log_.warn(fmt::format("rehearsal: {}", text_of(fault)));
  }
  rank_status_.add(*fault_injector_);
  // Bits are flipped when this thread enters a phase, not when a GPU is observed to have passed it.
  if (std::ranges::count(faults, FaultKind::flip, &Fault::kind) > 0) rank_status_.set_phase_queue(nullptr);
  fault_injector_->begin(faults, [this](const BitFlip& flip) { tutti::flip(trainer_->replica().state(), flip); });
}

// Names the best checkpoint, if --keep-best has kept it.
void TrainRun::log_best() const {
  const BestTest& best = trainer_->best_test();
  if (world_.rank() != 0 || folder_ == nullptr || !assembly_.config.trainer.checkpoint_at_best || best.samples == 0)
    return;
  if (!file_exists(folder_->store.path_of(best.step))) return;
  log_.info(fmt::format("best test accuracy {:.4f} at epoch {}: {}@best", best.accuracy(),
                        trainer_->epoch_of(best.step), assembly_.config.output.folder));
}

std::string TrainRun::train(const Invocation& invocation) {
  build(invocation);
  if (fault_injector_) inject_faults();
  TimeProfile time_profile(world_, rank_status_);
  std::optional<TraceFile> trace;
  if (!assembly_.config.output.trace.empty()) trace.emplace(world_, rank_status_, assembly_.config.output.trace);
  std::optional<RunOutput> output;
  run_or_throw_on_all(world_, [&] {
    output.emplace(world_, ReportedRun{.assembly = assembly_,
                                       .control = control_,
                                       .time_profile = time_profile,
                                       .folder = folder_,
                                       .kept = kept_,
                                       .keeps_states = keeps_states_,
                                       .arguments = invocation.arguments,
                                       .hosts = hosts_,
                                       .resumed_from = start_.resumed ? start_.resumed->path : "",
                                       .steps_done = trainer_->steps_done()});
  });
  RunEnd end = RunEnd::planned;
  run_then_barrier(world_, [&] { end = trainer_->run(*output); });
  rank_status_.enter(Phase::ending);
  if (fault_injector_) {
    for (const Fault& fault : fault_injector_->untriggered()) {
      log_.warn(fmt::format("rehearsal: fault not triggered: {}", text_of(fault)));
    }
  }
  const std::uint64_t digest = trainer_->weights_digest();
  output->finish(end, *trainer_);
  if (trace) trace->write(output->epochs(), log_);
  log_best();
  if (end == RunEnd::stopped && folder_ == nullptr) {
    return fmt::format("stopped by {} after {}; without --out nothing is saved", control_.reason(),
                       plural(trainer_->steps_done(), "step"));
  }
  if (end == RunEnd::stopped) {
    return fmt::format("stopped by {} with {} of {} steps done and saved; continue with --resume", control_.reason(),
                       trainer_->steps_done(), trainer_->planned_steps());
  }
  log_.info(fmt::format("done after {}, weights {}", plural(trainer_->steps_done(), "step"), digest_text(digest)));
  if (const std::int64_t left = trainer_->samples_left_over(); left > 0) {
    log_.info(fmt::format("{} samples of the last epoch were left over (--last-batch {})", left,
                          name_of(assembly_.config.trainer.last_batch)));
  }
  return {};
}

// The rank whose watch aborts the job writes exit.json, since other ranks may be stuck.
void write_exit_record_on_stall(const OwnedFolder& folder, StallWatch& watch) {
  watch.set_job_end_callback([folder](const StallReport& report) {
    write_exit_record(folder, {.status = ExitStatus::hang,
                               .rank = report.rank,
                               .host = report.host,
                               .reason = report.reason,
                               .at = report.at});
  });
}

}  // namespace

ExitStatus train_command(World& world, const Invocation& invocation, CommandContext& context) {
  RunConfig config = invocation.run;
  const Log log(world.rank(), world.host(), config.output.quiet);
  RankStatus rank_status;
  if (context.watch != nullptr) rank_status.publish_in(context.watch->status_slot());
  run_or_throw_on_all(world, [&] { refuse_without_out(config); });
  refuse_absent_run(world, config);
  log_or_throw(world, quick_checks(world, config), log);
  std::optional<RunFolder> folder;
  if (!config.output.folder.empty() && !config.dry_run) {
    folder.emplace(world, config, log);
    context.folder = folder->owned;
    if (context.watch != nullptr) write_exit_record_on_stall(folder->owned, *context.watch);
  }
  auto resumed = find_resumed(world, config, config.dry_run ? DamagedPolicy::ignore : DamagedPolicy::rename, log);
  if (context.watch != nullptr) context.watch->set_timeout(config.watch.timeout_seconds);
  RunStart start = make_start(world, config, std::move(resumed), log);
  if (!config.dry_run) log_or_throw(world, check_files(world, config), log);
  config.data = data_request_of(config, start.resumed);
  const JobFacts facts = find_facts(world, config.processor.device);
  Assembly assembly = assemble(world, facts, config, sources_of(start), log);
  DataDigests digests = digests_of(assembly.data);
  RunPlan plan;
  run_or_throw_on_all(world, [&] { plan = plan_run(assembly.config.trainer, assembly.data.train->info().samples); });
  if (start.resumed) {
    log_or_throw(world, refuse_other_data(*start.resumed, assembly.config, digests), log);
  }
  if (config.dry_run) {
    if (world.rank() == 0) fmt::print("{}", config_text(assembly.config));
    return ExitStatus::done;
  }
  log_or_throw(world, check_run(world, assembly, start, plan, Severity::warning), log);
  log_or_throw(world, check_processors(world, assembly.config, *assembly.processor.backend, start.resumed), log);
  const RunNeeds needs = check_needs(world, assembly);
  log_or_throw(world, needs.memory.findings, log);
  if (folder) assembly.config.trainer.file_shard = needs.shard;
  std::optional<KeptStates> kept;
  if (folder) kept.emplace(world, config.output.folder);
  if (needs.keeps_states && !kept->folder().empty()) assembly.config.trainer.kept_shard = FileShard{};
  if (folder && world.local_size() < world.size()) {
    log_or_throw(world, check_sharing(world, config.output.folder, needs.splits_checkpoints), log);
  }
  const AbortCollectivesOnExit abandoning(context.watch, *assembly.communicator);
  TrainRun run(world, assembly, start, digests, facts.hosts, rank_status, log, *context.signals,
               folder ? &*folder : nullptr, kept ? &*kept : nullptr, needs.keeps_states);
  try {
    context.reason = run.train(invocation);
  } catch (const Error& error) {
    if (error.source() != ErrorSource::gpu_memory) throw;
    const Error explained(error.source(), fmt::format("{}; {}", error.what(), memory_text(needs.memory.estimate)));
    throw error.scope() == ErrorScope::all_ranks ? explained.on_all_ranks() : explained;
  }
  return context.reason.empty() ? ExitStatus::done : ExitStatus::stopped;
}

}  // namespace tutti
