#include "tutti/train/trainer.hpp"

#include "tutti/base/error.hpp"
#include "tutti/base/timing.hpp"
#include "tutti/data/split_batch_sampler.hpp"

#include "evaluator.hpp"
#include "finite_check.hpp"
#include "part_balancer.hpp"
#include "part_workers.hpp"
#include "replica_verifier.hpp"
#include "step_throttle.hpp"
#include "weight_average.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <exception>
#include <optional>
#include <string_view>
#include <utility>

namespace tutti {
namespace {

bool due(std::int64_t count, std::int64_t every) { return every > 0 && count % every == 0; }

}  // namespace

Trainer::Trainer(const TrainerContext& context, const TrainerOptions& options, RunMetadata metadata)
    : network_(context.network),
      options_(options),
      metadata_(std::move(metadata)),
      norm_communicator_(context.norm_communicator),
      replica_(context, options),
      context_(replica_.context()),
      throttle_(std::make_unique<StepThrottle>(context_.backend, context_.stream, options.steps_ahead)),
      plan_(plan_run(options, context.train.info().samples)),
      learning_rate_(options.learning_rate, plan_.epoch_steps, plan_.schedule_steps) {
  validate(options.average);
  progress_.planned_steps = plan_.steps;
  progress_.seed = static_cast<std::int64_t>(options.seed);
  progress_.parts = options.num_parts;
  if (options.reports_samples) {
    report_samplers_ = SplitBatchSampler::for_parts(
        context.train.info().samples, options.batch_size, options.num_parts, {0, options.num_parts}, options.last_batch,
        {.shuffle = options.shuffle, .seed = options.seed, .labels = context.train.labels()});
  }
  if (options.test_every_epochs > 0 && context.test != nullptr && context.test->info().samples > 0) {
    evaluator_ = std::make_unique<Evaluator>(
        EvaluatedData{*context.test, options.recipe, context.network.classes(), options.views}, context_,
        replica_.workers(), options.max_workers);
  }
  validate(options.early_stop, evaluator_ != nullptr);
  start_next_epoch();
}

// Freeing memory waits for the processor, which may wait for an exchange that never ends once something has failed.
Trainer::~Trainer() {
  if (std::uncaught_exceptions() == 0) return;
  context_.communicator.abort();
  if (norm_communicator_ != nullptr) norm_communicator_->abort();
}

void Trainer::require_matching_progress(const TrainProgress& theirs) const {
  const auto require = [](std::string_view item, std::int64_t found, IndexRange wanted) {
    if (found >= wanted.begin && found < wanted.end) return;
    const bool is_one = wanted.size() == 1;
    throw Error(ErrorSource::checkpoint,
                fmt::format("{} is {} in the checkpoint, but {}{} with these options and this data: resume with the "
                            "original ones",
                            item, found, wanted.begin, is_one ? "" : fmt::format(" to {}", wanted.end - 1)));
  };
  const auto expect = [&](std::string_view item, std::int64_t found, std::int64_t wanted) {
    require(item, found, {wanted, wanted + 1});
  };
  expect("seed", theirs.seed, progress_.seed);
  expect("parts", theirs.parts, progress_.parts);
  require("epoch", theirs.epoch, {0, SplitBatchSampler::kMaxEpochs});
  require("step_in_epoch", theirs.step_in_epoch, {0, std::max<std::int64_t>(sampler().steps(theirs.epoch), 1)});
  expect("step", theirs.step, sampler().steps_before(theirs.epoch) + theirs.step_in_epoch);
  expect("samples_in_epoch", theirs.samples_in_epoch, sampler().samples_before(theirs.epoch, theirs.step_in_epoch));
  expect("carried_over", theirs.carried_over, sampler().carried_over(theirs.epoch));
}

void Trainer::restore(const TrainState& state) {
  synchronize();
  require_matching_progress(state.progress);
  replica_.state().restore(state);
  verified_.reset();
  progress_ = state.progress;
  progress_.planned_steps = plan_.steps;
  audits_ = 0;
  // Checkpoints of earlier versions have no weight; that of a whole epoch is the number of its samples.
  TrainSums& sums = progress_.epoch_sums;
  if (!options_.class_weights.empty() && sums.weight == 0) sums.weight = static_cast<double>(sums.samples);
  logged_ = sums;
  sums_at_last_rank_loss_ = context_.communicator.rank() == 0 ? sums : TrainSums{};
  rank_weight_ = sums_at_last_rank_loss_.weight;
  replica_.workers().set_sums(sums_at_last_rank_loss_);
  if (progress_.step_in_epoch == 0) skip_empty_epochs();
  replica_.loader().seek(progress_.epoch, progress_.step_in_epoch);
}

void Trainer::synchronize() {
  progress_.epoch_seconds += throttle_->synchronize();
  replica_.synchronize();
}

TrainState Trainer::snapshot(const std::optional<FileShard>& shard) {
  synchronize();
  TrainState state;
  state.progress = progress_;
  state.progress.samples_in_epoch = sampler().samples_before(progress_.epoch, progress_.step_in_epoch);
  state.progress.carried_over = sampler().carried_over(progress_.epoch);
  state.progress.epoch_sums = epoch_sums();
  refuse_not_finite(state.progress.epoch_sums);
  replica_.state().copy_to(state, shard);
  refuse_not_finite(state);
  static_cast<RunMetadata&>(state) = metadata_;
  state.choices = context_.backend.algorithm_cache();
  return state;
}

StepRequest Trainer::next_step() const {
  const std::int64_t updates = progress_.step - progress_.skipped_steps;
  const double done = static_cast<double>(progress_.step + 1) / static_cast<double>(plan_.schedule_steps);
  return {.step = progress_.step,
          .epoch = progress_.epoch,
          .updates = updates,
          .learning_rate = learning_rate(),
          .average_share = share_in_average(options_.average, updates + 1, done),
          .first_layer = first_trained_layer(network_, options_.optimizer, progress_.epoch)};
}

void Trainer::step() {
  throttle_->begin_step();
  StepRequest request = next_step();
  request.digests_gradients = due(progress_.step + 1, options_.digest_every_steps);
  done_ = replica_.step(request);
  if (done_.wrong_part) throw Error(ErrorSource::diverged, done_.wrong_part->text).on_all_ranks();
  if (due(progress_.step + 1, options_.safeguards.audit_every_steps)) ++audits_;
  throttle_->end_step();
  replica_.balance_parts();
  if (done_.skipped) {
    done_.skipped->in_all = ++progress_.skipped_steps;
  } else {
    progress_.epoch_sums.weight += done_.weight;
    rank_weight_ += done_.own_weight;
  }
  progress_.redone_steps += done_.repetitions;
  ++progress_.step;
  ++progress_.step_in_epoch;
  progress_.learning_rate = request.learning_rate;
}

RunEnd Trainer::run(RunObserver& observer) {
  if (progress_.step < plan_.steps) verify(observer);
  while (progress_.step < plan_.steps && early_end().empty()) {
    const std::int64_t epoch = progress_.epoch + 1;
    verified_step(observer);
    report_step(observer);
    const bool epoch_ends = progress_.step_in_epoch == sampler().steps(progress_.epoch);
    if (epoch_ends || progress_.step == plan_.steps) finish_epoch(observer, epoch_ends);
    const bool run_ends = progress_.step == plan_.steps || !early_end().empty();
    const BoundaryAction action = run_ends ? BoundaryAction::proceed : observer.at_boundary(progress_.step);
    const bool stops = action == BoundaryAction::save_and_stop;
    if (stops || action == BoundaryAction::save || checkpoint_due(epoch_ends ? epoch : 0, run_ends)) {
      pass_state(options_.file_shard, observer, &RunObserver::on_checkpoint);
    }
    if (action == BoundaryAction::keep) pass_state(options_.kept_shard, observer, &RunObserver::on_kept);
    if (epoch_ends || run_ends || stops) {
      observer.on_epoch_end({.epoch = epoch, .step = progress_.step, .prepared = replica_.loader().prepared()});
    }
    if (stops) return RunEnd::stopped;
  }
  return RunEnd::planned;
}

void Trainer::verified_step(RunObserver& observer) {
  bool is_due = false;
  try {
    step();
    // The replicas are verified before an epoch is reported.
    const bool ends = progress_.step_in_epoch == sampler().steps(progress_.epoch) || progress_.step == plan_.steps;
    is_due = replica_.verifier() != nullptr && (ends || due(progress_.step, options_.safeguards.verify_every_steps));
    if (is_due) synchronize();
  } catch (const Error& error) {
    if (done_.wrong_part) observer.on_wrong_part(*done_.wrong_part);
    // A value that is not finite may come from a bit that flipped on one rank: then the replicas differ.
    const bool everywhere = error.source() == ErrorSource::not_finite && error.scope() == ErrorScope::all_ranks;
    if (everywhere) verify(observer);
    throw;
  }
  context_.status.enter(Phase::reports);
  if (is_due) verify(observer);
}

void Trainer::verify(RunObserver& observer) {
  if (replica_.verifier() == nullptr) return;
  synchronize();
  auto found = replica_.verifier()->compare();
  if (!found) {
    verified_ = progress_.step;
    return;
  }
  found->step = progress_.step;
  found->equal_after = verified_;
  found->text =
      verified_ ? fmt::format(
                      "the replicas were equal after step {} and differ after step {}: {}; resume from the newest "
                      "checkpoint (--resume), and without that host if it happens there again",
                      *verified_, progress_.step, found->text)
                : fmt::format("the replicas differ before the first step of this run: {}; start it again", found->text);
  observer.on_divergence(*found);
  throw Error(ErrorSource::diverged, found->text).on_all_ranks();
}

void Trainer::pass_state(const std::optional<FileShard>& shard, RunObserver& observer,
                         void (RunObserver::*receive)(TrainState, double)) {
  synchronize();
  const Stopwatch watch;
  if (verified_ != progress_.step) verify(observer);
  context_.status.enter(Phase::checkpoint);
  TrainState state = snapshot(shard);
  (observer.*receive)(std::move(state), watch.seconds());
  context_.status.enter(Phase::reports);
}

void Trainer::report_step(RunObserver& observer) {
  observer.on_step({.epoch = progress_.epoch + 1,
                    .epochs = plan_.epochs,
                    .step_in_epoch = progress_.step_in_epoch,
                    .steps_in_epoch = sampler().steps(progress_.epoch),
                    .step = progress_.step,
                    .steps = plan_.steps,
                    .samples = sampler().batch_samples(progress_.epoch, progress_.step_in_epoch - 1),
                    .rank_loss = [this] { return rank_loss(); }});
  if (!report_samplers_.empty()) {
    SampleReport report{.step = progress_.step, .epoch = progress_.epoch + 1, .parts = {}};
    for (const SplitBatchSampler& part : report_samplers_) {
      report.parts.push_back(part.indices(progress_.epoch, progress_.step_in_epoch - 1));
    }
    observer.on_samples(report);
  }
  if (done_.skipped) observer.on_skipped(*done_.skipped);
  for (const std::string& note : replica_.balancer().take_notes()) observer.on_note(note);
  if (due(progress_.step, options_.log_every_steps)) {
    synchronize();
    const TrainSums now = epoch_sums();
    observer.on_interval({.step = progress_.step, .train = now - logged_, .learning_rate = progress_.learning_rate});
    logged_ = now;
  }
  if (done_.gradients_digest) {
    synchronize();
    observer.on_digest({.step = progress_.step,
                        .weights = replica_.state().weights_digest(),
                        .gradients = *done_.gradients_digest,
                        .optimizer = replica_.state().optimizer_digest(),
                        .statistics = replica_.state().statistics_digest(),
                        .averages = replica_.state().averages_digest()});
  }
}

TrainSums Trainer::epoch_sums() {
  return {context_.all_reduce(replica_.workers().sums()), progress_.epoch_sums.weight};
}

TrainSums Trainer::rank_loss() {
  const TrainSums now(replica_.workers().sums(), rank_weight_);
  return now - std::exchange(sums_at_last_rank_loss_, now);
}

void Trainer::finish_epoch(RunObserver& observer, bool whole) {
  synchronize();
  EpochReport report{.epoch = progress_.epoch + 1, .epochs = plan_.epochs, .step = progress_.step};
  report.train = epoch_sums();
  report.seconds = progress_.epoch_seconds;
  report.learning_rate = progress_.learning_rate;
  report.weights_digest = replica_.state().weights_digest();
  report.redone_steps = progress_.redone_steps;
  if (options_.safeguards.audit_every_steps > 0) report.audits = audits_;
  if (evaluator_ && (progress_.step == plan_.steps || due(report.epoch, options_.test_every_epochs))) {
    context_.status.enter(Phase::evaluation);
    const Stopwatch watch;
    replica_.state().with_average([&] { report.test = evaluator_->run(); });
    report.test_seconds = watch.seconds();
    context_.status.enter(Phase::reports);
  }
  observer.on_epoch(report);
  refuse_not_finite(report.train);
  if (report.test && report.test->not_finite > 0) {
    observer.on_note(fmt::format(
        "epoch {}: the test loss is not finite, but the training loss is, so training continues: the running "
        "batch norm statistics may not have converged, or --lr is too high",
        report.epoch));
    ++progress_.tests_since_best;
  } else if (report.test) {
    const BestTest now{.step = progress_.step, .correct = report.test->correct, .samples = report.test->samples};
    BestTest& best = progress_.best;
    const bool is_best = best.step < 0 || now.samples != best.samples || now.correct > best.correct;
    progress_.tests_since_best = is_best ? 0 : progress_.tests_since_best + 1;
    if (is_best) best = now;
  }
  if (whole) {
    logged_ = logged_ - report.train;
    ++progress_.epoch;
    start_next_epoch();
  }
}

std::string Trainer::early_end() const {
  const BestTest& best = progress_.best;
  const EarlyStop& stop = options_.early_stop;
  const bool has_best = best.step >= 0;  // else no test loss was finite so far
  if (!evaluator_ || (has_best && best.samples != evaluator_->samples())) return {};
  const double accuracy = has_best ? best.accuracy() : 0;
  if (stop.accuracy > 0 && accuracy >= stop.accuracy) {
    return fmt::format("the test accuracy {:.4f} after step {} reached --stop-at-accuracy {}", accuracy, best.step,
                       stop.accuracy);
  }
  if (stop.patience > 0 && progress_.tests_since_best >= stop.patience) {
    const auto why = has_best ? fmt::format("since the best test accuracy, {:.4f} after step {}", accuracy, best.step)
                              : "without a finite test loss";
    return fmt::format("{} evaluations {} (--patience {})", progress_.tests_since_best, why, stop.patience);
  }
  return {};
}

// The sums, and so the result, are equal on all ranks.
void Trainer::refuse_not_finite(const LossSums& sums) const {
  if (sums.not_finite == 0) return;
  throw not_finite_error(fmt::format("the loss is no longer a finite number in epoch {}, at step {} or before",
                                     progress_.epoch + 1, progress_.step));
}

// The last update may have produced weights that are not finite and that no loss has used yet. Such a state is never
// saved. Each rank has only some of the arrays.
void Trainer::refuse_not_finite(const TrainState& state) {
  const NamedArray* broken = nullptr;
  for (const auto* arrays : {&state.parameters, &state.statistics, &state.optimizer, &state.averages}) {
    const auto found = std::ranges::find_if_not(*arrays, is_finite);
    if (broken == nullptr && found != arrays->end()) broken = &*found;
  }
  if (context_.all_reduce(std::uint64_t{broken == nullptr ? 0U : 1U}) == 0) return;
  throw not_finite_error(fmt::format("{} contains values that are no longer finite after step {}",
                                     broken == nullptr ? "the state on another rank" : broken->name, progress_.step));
}

void Trainer::skip_empty_epochs() {
  while (progress_.epoch < options_.epochs && sampler().steps(progress_.epoch) == 0) ++progress_.epoch;
}

void Trainer::start_next_epoch() {
  skip_empty_epochs();
  progress_.step_in_epoch = 0;
  progress_.epoch_seconds = 0;
  progress_.epoch_sums = {};
  progress_.redone_steps = 0;
  audits_ = 0;
  sums_at_last_rank_loss_ = {};
  rank_weight_ = 0;
  replica_.workers().set_sums({});
}

bool Trainer::checkpoint_due(std::int64_t ended_epoch, bool run_ended) const {
  return (run_ended && options_.checkpoint_at_end) || due(progress_.step, options_.checkpoint_every_steps) ||
         (options_.checkpoint_at_best && progress_.best.step == progress_.step) ||
         (ended_epoch > 0 && due(ended_epoch, options_.checkpoint_every_epochs));
}

std::int64_t Trainer::samples_left_over() const {
  const bool whole_epochs = progress_.step_in_epoch == 0 && progress_.epoch > 0;
  return whole_epochs ? sampler().remainder(progress_.epoch - 1) : 0;
}

int Trainer::workers() const { return static_cast<int>(replica_.workers().size()); }

void validate(const EarlyStop& stop, bool evaluates) {
  if (evaluates || (stop.accuracy == 0 && stop.patience == 0)) return;
  throw Error(ErrorSource::usage,
              "--stop-at-accuracy and --patience need evaluations: give a test set (--test-data or "
              "--validation-ratio), and no --test-every 0");
}

RunPlan plan_run(const TrainerOptions& options, std::int64_t samples) {
  const SplitBatchSampler sampler(samples, options.batch_size, 1, 0, options.last_batch);
  RunPlan plan{.epochs = options.epochs, .epoch_steps = sampler.steps(0)};
  for (std::int64_t epoch = 0; epoch < options.epochs; ++epoch) {
    plan.steps += sampler.steps(epoch);
    if (options.steps <= 0 || plan.steps < options.steps) continue;
    plan.steps = options.steps;
    plan.epochs = epoch + 1;
    break;
  }
  const std::int64_t schedule_epochs = options.schedule_epochs > 0 ? options.schedule_epochs : options.epochs;
  plan.schedule_steps =
      options.schedule_epochs == kScheduleOfInvocation ? plan.steps : sampler.steps_before(schedule_epochs);
  if (plan.steps == 0 && options.epochs > 0) {
    throw Error(ErrorSource::usage,
                fmt::format("{} samples do not fill a batch of {} with --last-batch {}: lower --batch-size or use keep",
                            samples, options.batch_size, name_of(options.last_batch)));
  }
  return plan;
}

}  // namespace tutti
