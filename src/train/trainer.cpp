#include "tutti/train/trainer.hpp"

#include "tutti/base/digest.hpp"
#include "tutti/base/error.hpp"

#include "elements.hpp"
#include "evaluator.hpp"
#include "exact_sum.hpp"
#include "gradient_sync.hpp"
#include "ownership.hpp"
#include "part_dealer.hpp"
#include "part_team.hpp"
#include "state_arrays.hpp"
#include "step_pace.hpp"
#include "sum_over_ranks.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <exception>
#include <optional>
#include <utility>

namespace tutti {
namespace {

std::unique_ptr<ExactSum> make_exact_sum(const TrainerParts& parts, const TrainerOptions& options,
                                         const Tensor& gradients) {
  if (options.exchange.kind != Exchange::exact) return nullptr;
  return std::make_unique<ExactSum>(parts.backend, parts.communicator, parts.network.layout(), gradients,
                                    options.num_parts);
}

LoaderPlan loader_plan(const TrainerOptions& options, IndexRange parts) {
  return {.batch_size = options.batch_size,
          .num_parts = options.num_parts,
          .parts = parts,
          .last_batch = options.last_batch,
          .order = {.shuffle = options.shuffle, .seed = options.seed},
          .steps_ahead = options.steps_ahead,
          .readers = options.readers,
          .recipe = options.recipe};
}

std::int64_t count_planned_steps(const TrainerOptions& options, const BatchLoader& loader, std::int64_t samples) {
  std::int64_t steps = 0;
  for (std::int64_t epoch = 0; epoch < options.epochs; ++epoch) {
    steps += loader.steps(epoch);
    if (options.steps > 0 && steps >= options.steps) return options.steps;
  }
  if (steps == 0 && options.epochs > 0) {
    throw Error(ErrorSource::usage,
                fmt::format("{} samples fill no batch of {} with --last-batch {}: lower --batch-size or use keep",
                            samples, options.batch_size, name_of(options.last_batch)));
  }
  return steps;
}

bool due(std::int64_t count, std::int64_t every) { return every > 0 && count % every == 0; }

LossSums difference(const LossSums& more, const LossSums& less) {
  return {.loss_steps = more.loss_steps - less.loss_steps,
          .correct = more.correct - less.correct,
          .samples = more.samples - less.samples,
          .not_finite = more.not_finite - less.not_finite};
}

// The processor is made ready for this thread before the first plan is made on it.
Backend& entered(Backend& backend, int threads) {
  backend.enter_compute_thread(threads);
  return backend;
}

}  // namespace

class Trainer::Run {
 public:
  Run(const TrainerParts& parts, const TrainerOptions& options, RunFacts facts);
  ~Run();
  Run(const Run&) = delete;
  Run& operator=(const Run&) = delete;

  void restore(const TrainState& state);
  TrainState snapshot();
  void step();
  void step_with(const Tensor& gradients);
  void settle() { progress_.epoch_seconds += pace_.settle(); }
  void run(RunObserver& observer);
  LossSums evaluate();
  LossSums global_epoch_sums() { return sum_over_ranks_(*stream_, team_.sums()); }
  std::uint64_t digest_of_block(const Tensor& block) {
    return digest_of(backend_, *stream_, block, arena_.layout().trained());
  }
  std::optional<std::uint64_t> digest_of_statistics();
  std::uint64_t digest_of_optimizer();
  std::size_t memory_bytes() const {
    return arena_.layout().block_bytes() + exchange_bytes() + optimizer_bytes() + team_.memory_bytes();
  }
  std::size_t exchange_bytes() const { return arena_.layout().block_bytes() + (exact_ ? exact_->bytes() : 0); }
  std::size_t optimizer_bytes() const;
  int players() const { return static_cast<int>(team_.size()); }
  std::int64_t replayed_steps() const { return exact_ ? exact_->replayed_steps() : 0; }

  const TrainProgress& progress() const { return progress_; }
  std::int64_t planned_steps() const { return planned_steps_; }
  const PartPlan& part_plan() const { return dealer_.plan(); }
  std::int64_t samples_left_over() const;
  Tensor weights_block() const { return arena_.weights(); }
  Tensor gradients_block() const { return arena_.gradients(); }

 private:
  OptimizerParts optimizer_parts() { return {backend_, communicator_, arena_.layout(), ownership_}; }
  bool exchanged();
  void update();
  void update_statistics();
  PartTeam::Ready ready() {
    return [this](std::int64_t final_elements) { sync_.ready(final_elements, *stream_); };
  }
  void report_step(RunObserver& observer);
  void finish_epoch(RunObserver& observer, bool whole);
  void refuse_not_finite(const LossSums& sums) const;
  void refuse_not_finite(const std::vector<NamedArray>& parameters) const;
  bool checkpoint_due(bool epoch_ended, bool run_ended) const;
  void start_next_epoch();

  Backend& backend_;
  Communicator& communicator_;
  const Network& network_;
  const Dataset& train_;
  TrainerOptions options_;
  RunFacts facts_;

  std::unique_ptr<Stream> stream_;
  StepPace pace_;
  ParameterArena arena_;
  NetworkWeights weights_;
  PartDealer dealer_;
  BatchLoader loader_;
  PartTeam team_;
  FloatTotal float_total_;
  std::unique_ptr<ExactSum> exact_;  // null: gradients are added as they are
  Ownership ownership_;
  GradientSync sync_;
  std::unique_ptr<Optimizer> optimizer_;
  SumOverRanks sum_over_ranks_;
  std::optional<Evaluator> evaluator_;

  std::int64_t planned_steps_ = 0;
  std::optional<LrSchedule> schedule_;
  TrainProgress progress_;
  LossSums logged_;  // the sums when the last stretch was reported, counted from the start of the epoch under way
  double learning_rate_ = 0;
  std::optional<std::uint64_t> gradients_digest_;
};

Trainer::Run::Run(const TrainerParts& parts, const TrainerOptions& options, RunFacts facts)
    : backend_(entered(parts.backend, options.threads)),
      communicator_(parts.communicator),
      network_(parts.network),
      train_(parts.train),
      options_(options),
      facts_(std::move(facts)),
      stream_(backend_.make_stream()),
      pace_(backend_, *stream_, options.steps_ahead),
      arena_(network_.layout(), backend_, communicator_.allocate(network_.layout().block_bytes())),
      weights_(network_, backend_, arena_.weights()),
      dealer_(backend_, communicator_, options.part_map, options.num_parts),
      loader_(train_, backend_, loader_plan(options, dealer_.parts())),
      team_({.network = network_,
             .weights = weights_,
             .backend = backend_,
             .stream = *stream_,
             .players = static_cast<int>(std::min<std::int64_t>(options.side_by_side, dealer_.most_parts())),
             .threads = options.threads,
             .label_smoothing = options.label_smoothing,
             .after_part = options.after_part}),
      float_total_(backend_, arena_.gradients()),
      exact_(make_exact_sum(parts, options, arena_.gradients())),
      ownership_(options.exchange.owners(), network_.layout(), cut_buckets(network_.layout(), options.bucket_bytes),
                 {.rank = communicator_.rank(), .size = communicator_.size()}),
      sync_(communicator_, ownership_, arena_.gradients(), exact_.get()),
      optimizer_(make_optimizer(options.optimizer, optimizer_parts())),
      sum_over_ranks_(backend_, communicator_),
      planned_steps_(count_planned_steps(options, loader_, train_.info().samples)) {
  stream_->while_waiting([this] { communicator_.progress(); });
  schedule_.emplace(options.learning_rate, loader_.steps(0), planned_steps_);
  for (const std::int64_t samples : loader_.slice_sizes()) team_.plan(samples, LayerMode::training);
  const bool alone = communicator_.size() == 1;
  GradientTotal& total = exact_ ? static_cast<GradientTotal&>(*exact_) : float_total_;
  team_.collect_gradients(total, dealer_.most_parts(), alone ? std::vector<std::int64_t>{} : ownership_.bucket_ends());
  if (parts.test != nullptr && parts.test->info().samples > 0) {
    evaluator_.emplace(EvaluatedData{*parts.test, options_.recipe}, backend_, communicator_, team_);
  }
  initialize(network_, options.initializer, options.seed, backend_, arena_.weights());
  weights_.refresh(*stream_);
  start_next_epoch();
  loader_.seek(progress_.epoch, 0);
}

// Freeing memory waits for the processor, and that for sums under way, which may never end once something has failed.
Trainer::Run::~Run() {
  if (std::uncaught_exceptions() > 0) communicator_.abandon();
}

void Trainer::Run::restore(const TrainState& state) {
  const ParameterLayout& layout = arena_.layout();
  fill_from_arrays(backend_, *stream_, arena_.weights(), layout.trained(), "", state.parameters);
  fill_from_arrays(backend_, *stream_, arena_.weights(), layout.statistics(), "", state.statistics);
  restore_state(optimizer_parts(), *stream_, *optimizer_, state.optimizer);
  weights_.refresh(*stream_);
  if (exact_) exact_->restore(*stream_, state.exchange);
  progress_ = state.progress;
  logged_ = progress_.epoch_sums;
  team_.set_sums(communicator_.rank() == 0 ? progress_.epoch_sums : LossSums{});
  const std::int64_t steps = loader_.steps(progress_.epoch);
  if (progress_.step_in_epoch > 0 && progress_.step_in_epoch >= steps) {
    throw Error(ErrorSource::checkpoint,
                fmt::format("the checkpoint is at step {} of an epoch of {} steps", progress_.step_in_epoch, steps));
  }
  loader_.seek(progress_.epoch, progress_.step_in_epoch);
}

TrainState Trainer::Run::snapshot() {
  settle();
  TrainState state;
  state.progress = progress_;
  state.progress.epoch_sums = global_epoch_sums();
  refuse_not_finite(state.progress.epoch_sums);
  state.parameters = arrays_of(backend_, *stream_, arena_.weights(), arena_.layout().trained(), "");
  state.statistics = arrays_of(backend_, *stream_, arena_.weights(), arena_.layout().statistics(), "");
  state.optimizer = gather_state(optimizer_parts(), *stream_, *optimizer_);
  if (exact_) state.exchange = exact_->state();
  refuse_not_finite(state.parameters);
  refuse_not_finite(state.statistics);
  state.configuration = facts_.configuration;
  state.model = facts_.model;
  state.versions = facts_.versions;
  state.choices = backend_.choices();
  state.data_digest = facts_.data_digest;
  return state;
}

void Trainer::Run::step() {
  pace_.begin_step();
  learning_rate_ = schedule_->at(progress_.step, progress_.epoch);
  TeamStep step{
      .batches = loader_.next(*stream_), .seed = options_.seed, .step = progress_.step, .measured = dealer_.measures()};
  for (team_.play(step, ready()); !exchanged(); team_.play(step, ready())) step.counts = false;
  if (due(progress_.step + 1, options_.digest_every_steps)) {
    gather_owned(communicator_, ownership_, arena_.gradients(), *stream_);
    gradients_digest_ = digest_of_block(arena_.gradients());
  }
  update();
  pace_.end_step();
  if (dealer_.after_step(*stream_, team_.seconds_per_part())) loader_.deal(dealer_.parts());
  ++progress_.step;
  ++progress_.step_in_epoch;
}

void Trainer::Run::step_with(const Tensor& gradients) {
  pace_.begin_step();
  for (team_.take(gradients, ready()); !exchanged();) team_.take(gradients, ready());
  update();
  pace_.end_step();
}

// Whether the gradients of the step now stand.
bool Trainer::Run::exchanged() {
  sync_.finish(*stream_);
  return !exact_ || exact_->judge(*stream_, progress_.step + 1);
}

// Those who own elements update them; then all have all.
void Trainer::Run::update() {
  optimizer_->apply(*stream_, arena_, learning_rate_, progress_.step + 1);
  update_statistics();
  gather_owned(communicator_, ownership_, arena_.weights(), *stream_);
  weights_.refresh(*stream_);
}

// The tail of the gradients holds the step's statistics, averaged over all parts by their samples.
void Trainer::Run::update_statistics() {
  const ParameterLayout& layout = arena_.layout();
  for (const IndexRange& own : within(ownership_.owned(), {layout.trained_elements(), layout.block_elements()})) {
    backend_.blend(*stream_, elements_of(arena_.weights(), own), elements_of(arena_.gradients(), own),
                   static_cast<float>(BatchNormSpec::kMomentum));
  }
}

void Trainer::Run::run(RunObserver& observer) {
  while (progress_.step < planned_steps_) {
    step();
    report_step(observer);
    const bool epoch_ended = progress_.step_in_epoch == loader_.steps(progress_.epoch);
    const bool run_ended = progress_.step == planned_steps_;
    if (epoch_ended || run_ended) finish_epoch(observer, epoch_ended);
    if (checkpoint_due(epoch_ended, run_ended)) observer.on_checkpoint(snapshot());
  }
}

void Trainer::Run::report_step(RunObserver& observer) {
  observer.on_step({.epoch = progress_.epoch + 1,
                    .epochs = options_.epochs,
                    .step_in_epoch = progress_.step_in_epoch,
                    .steps_in_epoch = loader_.steps(progress_.epoch)});
  for (const std::string& note : dealer_.take_notes()) observer.on_note(note);
  if (due(progress_.step, options_.log_every_steps)) {
    settle();
    const LossSums now = global_epoch_sums();
    observer.on_stretch({.step = progress_.step, .train = difference(now, logged_), .learning_rate = learning_rate_});
    logged_ = now;
  }
  if (gradients_digest_) {
    settle();
    observer.on_digest({.step = progress_.step,
                        .weights = digest_of_block(arena_.weights()),
                        .gradients = *std::exchange(gradients_digest_, std::nullopt),
                        .optimizer = digest_of_optimizer(),
                        .statistics = digest_of_statistics()});
  }
}

void Trainer::Run::finish_epoch(RunObserver& observer, bool whole) {
  settle();
  EpochReport report{.epoch = progress_.epoch + 1, .epochs = options_.epochs, .step = progress_.step};
  report.train = global_epoch_sums();
  report.seconds = progress_.epoch_seconds;
  report.learning_rate = learning_rate_;
  report.weights_digest = digest_of_block(arena_.weights());
  const bool last = progress_.step == planned_steps_;
  if (evaluator_ && options_.test_every_epochs > 0 && (last || due(report.epoch, options_.test_every_epochs))) {
    report.test = evaluator_->run(*stream_);
  }
  observer.on_epoch(report);
  refuse_not_finite(report.train);
  if (report.test) refuse_not_finite(*report.test);
  if (whole) {
    logged_ = difference(logged_, report.train);
    ++progress_.epoch;
    start_next_epoch();
  }
}

// The sums, and so the verdict, are equal on all ranks.
void Trainer::Run::refuse_not_finite(const LossSums& sums) const {
  if (sums.not_finite == 0) return;
  throw Error(
      ErrorSource::not_finite,
      fmt::format("the loss is no longer a finite number in epoch {}, at step {} or before: lower --lr, or warm "
                  "up with --warmup-epochs 1",
                  progress_.epoch + 1, progress_.step))
      .on_all_ranks();
}

// A last step can break weights that no loss has seen yet; such weights are never kept.
void Trainer::Run::refuse_not_finite(const std::vector<NamedArray>& parameters) const {
  for (const NamedArray& array : parameters) {
    if (std::ranges::all_of(array.values, [](float value) { return std::isfinite(value); })) continue;
    throw Error(
        ErrorSource::not_finite,
        fmt::format("{} holds values that are no longer finite after step {}: lower --lr", array.name, progress_.step))
        .on_all_ranks();
  }
}

void Trainer::Run::start_next_epoch() {
  while (progress_.epoch < options_.epochs && loader_.steps(progress_.epoch) == 0) ++progress_.epoch;
  progress_.step_in_epoch = 0;
  progress_.epoch_seconds = 0;
  progress_.epoch_sums = {};
  team_.set_sums({});
}

bool Trainer::Run::checkpoint_due(bool epoch_ended, bool run_ended) const {
  return (run_ended && options_.checkpoint_at_end) || due(progress_.step, options_.checkpoint_every_steps) ||
         (epoch_ended && due(progress_.epoch, options_.checkpoint_every_epochs));
}

std::int64_t Trainer::Run::samples_left_over() const {
  const bool whole_epochs = progress_.step_in_epoch == 0 && progress_.epoch > 0;
  return whole_epochs ? loader_.remainder(progress_.epoch - 1) : 0;
}

LossSums Trainer::Run::evaluate() {
  if (!evaluator_) throw Error(ErrorSource::input, "there is no test set to evaluate on: give --test-data");
  settle();
  return evaluator_->run(*stream_);
}

std::optional<std::uint64_t> Trainer::Run::digest_of_statistics() {
  const auto statistics = arena_.layout().statistics();
  if (statistics.empty()) return std::nullopt;
  return digest_of(backend_, *stream_, arena_.weights(), statistics);
}

std::uint64_t Trainer::Run::digest_of_optimizer() {
  std::uint64_t sum = 0;
  for (const NamedArray& array : gather_state(optimizer_parts(), *stream_, *optimizer_)) {
    sum += digest(array.name, std::span<const float>(array.values));
  }
  return sum;
}

std::size_t Trainer::Run::optimizer_bytes() const {
  std::size_t bytes = 0;
  for (const OptimizerSlot& slot : optimizer_->slots()) bytes += slot.block.bytes();
  return bytes;
}

Trainer::Trainer(const TrainerParts& parts, const TrainerOptions& options, RunFacts facts)
    : run_(std::make_unique<Run>(parts, options, std::move(facts))) {}
Trainer::~Trainer() = default;

void Trainer::restore(const TrainState& state) { run_->restore(state); }
TrainState Trainer::snapshot() { return run_->snapshot(); }
void Trainer::step() { run_->step(); }
void Trainer::settle() { run_->settle(); }
void Trainer::run(RunObserver& observer) { run_->run(observer); }
LossSums Trainer::evaluate() { return run_->evaluate(); }
std::int64_t Trainer::steps_done() const { return run_->progress().step; }
std::int64_t Trainer::planned_steps() const { return run_->planned_steps(); }
const PartPlan& Trainer::part_plan() const { return run_->part_plan(); }
std::int64_t Trainer::samples_left_over() const { return run_->samples_left_over(); }
std::uint64_t Trainer::weights_digest() { return run_->digest_of_block(run_->weights_block()); }
int Trainer::players() const { return run_->players(); }
std::size_t Trainer::memory_bytes() const { return run_->memory_bytes(); }
std::size_t Trainer::exchange_bytes() const { return run_->exchange_bytes(); }
std::size_t Trainer::optimizer_bytes() const { return run_->optimizer_bytes(); }
std::int64_t Trainer::replayed_steps() const { return run_->replayed_steps(); }
Tensor Trainer::gradients() const { return run_->gradients_block(); }
void Trainer::step_with(const Tensor& gradients) { run_->step_with(gradients); }
LossSums Trainer::epoch_sums() { return run_->global_epoch_sums(); }

}  // namespace tutti
