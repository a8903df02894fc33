#include "tutti/train/replica.hpp"

#include "exchange.hpp"
#include "finite_check.hpp"
#include "part_audit.hpp"
#include "part_balancer.hpp"
#include "part_workers.hpp"
#include "phase_timeline.hpp"
#include "recorded_work.hpp"
#include "replica_verifier.hpp"
#include "state_arrays.hpp"
#include "step_timer.hpp"
#include "weight_average.hpp"

#include <algorithm>

namespace tutti {
namespace {

// Initializes the calling thread for the backend. It is called in the first initializer of Replica, since the backend
// may prepare layers only afterwards.
Backend& initialize_thread_of(Backend& backend, int threads) {
  backend.enter_compute_thread(threads);
  return backend;
}

LoaderPlan loader_plan(const TrainerContext& context, const TrainerOptions& options, IndexRange parts,
                       RankStatus& status) {
  return {.batch_size = options.batch_size,
          .num_parts = options.num_parts,
          .parts = parts,
          .last_batch = options.last_batch,
          .order = {.shuffle = options.shuffle, .seed = options.seed, .labels = context.train.labels()},
          .steps_ahead = options.steps_ahead,
          .readers = options.readers,
          .recipe = options.recipe,
          .class_weights = options.class_weights,
          .after_piece = [&status] { status.note_progress(); }};
}

// The gradients as they are sent with --wire bf16; otherwise empty.
std::unique_ptr<OwnedTensor> make_rounded_gradients(const TrainerContext& context, const ExchangeOptions& exchange) {
  if (!exchange.rounds() || context.communicator.size() == 1) return std::make_unique<OwnedTensor>();
  return std::make_unique<OwnedTensor>(context.communicator, context.network.layout().trained_elements(),
                                       ElementType::bf16);
}

WorkersRequest workers_request(const TrainerContext& context, const TrainerOptions& options, const RankContext& rank,
                               NetworkWeights& weights, int max_parts, NormSums* norm_sums) {
  return {.network = context.network,
          .weights = weights,
          .backend = rank.backend,
          .stream = rank.stream,
          .workers = options.workers(max_parts),
          .threads = options.threads,
          .loss = options.loss(),
          .restores_sums =
              options.exchange.kind == Exchange::exact || options.safeguards.on_not_finite == OnNotFinite::skip,
          .rank_status = rank.status,
          .norm_sums = norm_sums};
}

}  // namespace

Replica::Replica(const TrainerContext& context, const TrainerOptions& options)
    : backend_(initialize_thread_of(context.backend, options.threads)),
      own_status_(context.rank_status == nullptr ? std::make_unique<RankStatus>() : nullptr),
      stream_(backend_.make_stream()),
      context_(std::make_unique<RankContext>(backend_, context.communicator,
                                             own_status_ ? *own_status_ : *context.rank_status, *stream_)),
      seed_(options.seed),
      timeline_(std::make_unique<PhaseTimeline>(backend_, *stream_, context_->status)),
      arena_(context.network.layout(), backend_, context.communicator.allocate(context.network.layout().block_bytes())),
      weights_(context.network, backend_, arena_.weights()),
      balancer_(std::make_unique<PartBalancer>(*context_, options)),
      loader_(context.train, backend_, loader_plan(context, options, balancer_->parts(), context_->status)),
      norm_sums_(make_norm_sums(context, options, *context_)),
      workers_(std::make_unique<PartWorkers>(
          workers_request(context, options, *context_, weights_, balancer_->max_parts(), norm_sums_.get()))),
      float_total_(std::make_unique<GradientAccumulator>(backend_, arena_.gradients())),
      exact_(options.exchange.kind == Exchange::exact
                 ? std::make_unique<ExactAccumulator>(*context_, arena_.layout(), arena_.gradients(), options.num_parts)
                 : nullptr),
      // With --verify-replicas the check must not be delayed: an infinity from a flipped bit would otherwise spread to
      // all ranks through the exchange, and the replicas would be equal.
      finite_check_(std::make_unique<FiniteCheck>(
          FiniteCheckRequest{.context = *context_,
                             .arena = arena_,
                             .exact = exact_.get(),
                             .max_workers_of_any = balancer_->max_parts_of_any(),
                             .max_delay_steps = options.safeguards.verify_every_steps > 0 ? 0 : options.steps_ahead,
                             .on_not_finite = options.safeguards.on_not_finite,
                             .hosts = context.hosts})),
      ownership_(std::make_unique<Ownership>(
          options.exchange.owners(), arena_.layout(), make_buckets(arena_.layout(), options.bucket_bytes),
          RankPosition{.rank = context.communicator.rank(), .size = context.communicator.size()})),
      rounded_(make_rounded_gradients(context, options.exchange)),
      exchange_(std::make_unique<GradientExchange>(context.communicator, *ownership_,
                                                   ExchangedGradients{.gradients = arena_.gradients(),
                                                                      .exact = exact_.get(),
                                                                      .rounded = rounded_->values,
                                                                      .backend = &backend_})),
      optimizer_(make_optimizer(options.optimizer, optimizer_context())),
      recorded_updates_(std::make_unique<RecordedWork>(backend_)),
      average_(make_weight_average(options.average, backend_, arena_.weights())) {
  stream_->set_wait_callback([this] {
    context_->communicator.progress();
    timeline_->poll();
  });
  for (const std::int64_t samples : loader_.part_batch_sizes()) workers_->plan(samples, LayerMode::training);
  const std::vector<std::int64_t> ends = is_alone() ? std::vector<std::int64_t>{} : bucket_ends();
  workers_->collect_gradients(total(), balancer_->max_parts(), ends);
  initialize(context.network, options.initializer, options.seed, backend_, arena_.weights());
  begin_with_weights();
  audit_ = make_part_audit(
      {context, options, *context_, loader_, arena_, weights_, *workers_, exact_.get(), norm_sums_.get()});
}

Replica::~Replica() = default;

void Replica::begin_with_weights() {
  weights_.refresh(*stream_);
  if (average_) average_->reset(*stream_);
}

StepResult Replica::step(const StepRequest& request) {
  StepTimer clock(*stream_, request.times);
  context_->status.begin_step(request.step + 1, Phase::data);
  const PartsOfStep loaded{.batches = loader_.next(*stream_),
                           .seed = seed_,
                           .step = request.step,
                           .first_layer = request.first_layer,
                           .timed = balancer_->times_next_step()};
  const PartsOfStep parts = audit_ ? audit_->observed(loaded, balancer_->map()) : loaded;
  clock.end(&StepTimes::input);
  const auto start_exchange = [&](std::int64_t ready_elements) {
    clock.end_interval(ready_elements);
    // Phase::exchange is this rank's own work for the exchange: starting collectives and driving their progress.
    context_->status.enter(Phase::exchange);
    start_ready_buckets(ready_elements);
    clock.end(&StepTimes::overlapped_exchange);
    context_->status.enter(Phase::backward);
  };
  StepResult result{.weight = loaded.batches.weight.value_or(0), .own_weight = loaded.batches.own_weight};
  // Nothing is waited for between the gradients and the update: neither other ranks nor the host.
  if (is_alone() && !gathers_weights() && !exact_ && finite_check_->is_delayed() && request.times == nullptr) {
    PartsOfStep alone = parts;
    alone.may_leave_unfinished = optimizer_->reads_gradients_once() && !request.digests_gradients && !audit_;
    workers_->compute(alone, start_exchange);
    update_at_once(request, parts.batches.batches);
    if (request.digests_gradients) result.gradients_digest = gradients_digest();
    return result;
  }
  const auto compute = [&] {
    const bool delays_exchange = audit_ && audit_->delays_exchange();
    if (audit_) audit_->before_parts(parts);
    workers_->compute(parts, delays_exchange ? [](std::int64_t) {} : PartWorkers::OnGradientsReady(start_exchange));
    if (audit_) audit_->after_parts(parts);
    if (delays_exchange) start_exchange(arena_.layout().block_elements());
    if (audit_) result.wrong_part = audit_->compare(parts);
    if (!result.wrong_part) return finish_exchange(request.step, parts.batches.batches);
    exchange_->finish(*stream_);
    return StepOutcome::wrong;
  };
  StepOutcome outcome = compute();
  for (; outcome == StepOutcome::repeat; outcome = compute()) {
    ++result.repetitions;
    workers_->restore_sums();
    clock.restart();
  }
  clock.end(&StepTimes::waiting);
  if (outcome == StepOutcome::wrong) return result;
  if (outcome == StepOutcome::skipped) {
    workers_->restore_sums();
    result.skipped = finite_check_->take_skipped();
    return result;
  }
  if (request.digests_gradients) result.gradients_digest = gradients_digest();
  if (request.verifier != nullptr) request.verifier->record();
  update(request);
  return result;
}

void Replica::balance_parts() {
  if (balancer_->after_step(workers_->seconds_per_part())) loader_.assign(balancer_->parts());
}

void Replica::synchronize() {
  stream_->synchronize();
  timeline_->synchronize();
  finite_check_->synchronize();
}

void Replica::set_gradients(const Tensor& gradients) {
  total().begin(*stream_);
  if (gradients.data == nullptr) return total().clear(*stream_);
  if (total().sums_in_place()) backend_.copy(*stream_, arena_.gradients(), gradients);
  total().add(*stream_, {0, gradients}, {0, gradients.elements()});
}

void Replica::start_ready_buckets(std::int64_t ready_elements) {
  if (!is_alone() && exchange_->is_due(ready_elements)) finite_check_->search(ready_elements);
  exchange_->start_ready_buckets(ready_elements, *stream_);
}

StepOutcome Replica::finish_exchange(std::int64_t step, std::span<const Batch> batches) {
  context_->status.enter(Phase::exchange);
  if (exact_) exact_->gather_largest();
  finite_check_->find(workers_->bad_losses(), batches);
  finite_check_->gather();
  // Phase::waiting begins when this rank has nothing left to do until the other ranks arrive.
  context_->status.enter(Phase::waiting);
  exchange_->finish(*stream_);
  finite_check_->copy_findings();
  // If checks are delayed, this is the result of an earlier step. It may end the run, but never skips this step: checks
  // are not delayed with OnNotFinite::skip, nor with `exact`, whose check() needs finite gradients.
  if (!finite_check_->check(step + 1)) return StepOutcome::skipped;
  return !exact_ || exact_->check() ? StepOutcome::valid : StepOutcome::repeat;
}

void Replica::update_at_once(const StepRequest& request, std::span<const Batch> batches) {
  context_->status.enter(Phase::update);
  exchange_->finish(*stream_);
  optimizer_->set_step(*stream_, request.learning_rate, request.updates + 1, request.epoch);
  RecordedWork::Key key = finite_check_->key(batches);
  UnfinishedGradients* const unfinished = workers_->unfinished();
  if (unfinished != nullptr) {
    for (const UnfinishedGradient& gradient : unfinished->list()) key.push_back(gradient.values.data);
  }
  recorded_updates_->run(*stream_, key, [&] {
    finite_check_->find(workers_->bad_losses(), batches, unfinished);
    finite_check_->copy_findings();
    update_owned(unfinished);
  });
  add_to_average(request);
  finite_check_->check(request.step + 1);
}

void Replica::add_to_average(const StepRequest& request) {
  if (average_ && average_->add(*stream_, request.average_share)) weights_.refresh(*stream_);
}

void Replica::with_average(const std::function<void()>& work) {
  const auto swap = [this] {
    if (!average_) return;
    average_->swap(*stream_);
    weights_.refresh(*stream_);
  };
  swap();
  try {
    work();
  } catch (...) {
    swap();
    throw;
  }
  swap();
}

void Replica::update_owned(UnfinishedGradients* unfinished) {
  // The tail of the gradients holds the step's statistics, averaged over all parts by their samples.
  for (const IndexRange& own : ownership_->owned()) {
    update_statistics(backend_, *stream_, arena_.layout(), {arena_.weights(), arena_.gradients(), own.begin, own.end});
  }
  if (unfinished != nullptr) return optimizer_->update(*stream_, arena_, {*unfinished, weights_.all()});
  optimizer_->apply(*stream_, arena_);
  if (!gathers_weights()) weights_.refresh(*stream_);
}

// Owners update their elements; then the weights are gathered, so that every rank has all of them.
void Replica::update(const StepRequest& request) {
  StepTimer clock(*stream_, request.times);
  context_->status.enter(Phase::update);
  optimizer_->set_step(*stream_, request.learning_rate, request.updates + 1, request.epoch);
  if (gathers_weights()) {
    update_owned();
    clock.end(&StepTimes::update);
    gather_weights();
    clock.end(&StepTimes::waiting);
    context_->status.enter(Phase::update);
    weights_.refresh(*stream_);
  } else {
    recorded_updates_->run(*stream_, {}, [this] { update_owned(); });
  }
  add_to_average(request);
  clock.end(&StepTimes::update);
}

void Replica::gather_weights() {
  context_->status.enter(Phase::waiting);
  gather_owned(context_->communicator, *ownership_, arena_.weights(), *stream_);
}

void Replica::copy_state_to(TrainState& state, const std::optional<FileShard>& shard) {
  const ParameterLayout& layout = arena_.layout();
  ShardSelector selector(shard, layout, *optimizer_, average_ != nullptr);
  state.parameters = arrays_of(backend_, *stream_, arena_.weights(), selector.select_next(layout.trained()), "");
  state.statistics = arrays_of(backend_, *stream_, arena_.weights(), selector.select_next(layout.statistics()), "");
  const auto gather = [&] { return gather_state(optimizer_context(), *stream_, *optimizer_, selector); };
  state.optimizer = gathers_weights() ? context_->status.wait_for_ranks(gather) : gather();
  if (average_) {
    state.averages = arrays_of(backend_, *stream_, average_->values(), selector.select_next(layout.slices()), "");
  }
  if (exact_ && shard && shard->file == 0) state.exchange = exact_->state();
}

void Replica::restore(const TrainState& state) {
  fill_weights(backend_, *stream_, arena_.weights(), arena_.layout(), state);
  restore_state(optimizer_context(), *stream_, *optimizer_, state.optimizer);
  weights_.refresh(*stream_);
  if (average_) fill_slices(backend_, *stream_, average_->values(), arena_.layout().slices(), state.averages);
  if (exact_) exact_->restore(state.exchange);
}

std::vector<std::string> Replica::initialize_from(const TrainState& state, bool new_head) {
  auto left = fill_except_head(backend_, *stream_, arena_, state, new_head);
  begin_with_weights();
  return left;
}

OptimizerContext Replica::optimizer_context() const {
  return {backend_, context_->communicator, arena_.layout(), *ownership_};
}

GradientAccumulator& Replica::total() { return exact_ ? *exact_ : *float_total_; }

bool Replica::is_alone() const { return context_->communicator.size() == 1; }

bool Replica::gathers_weights() const { return ownership_->owners() != Owners::all; }

const std::vector<std::int64_t>& Replica::bucket_ends() const { return ownership_->bucket_ends(); }

const std::vector<bool>& Replica::exchanged_buckets() const { return ownership_->exchanged(); }

double Replica::owned_fraction() const {
  std::int64_t elements = 0;
  for (const IndexRange& own : ownership_->owned()) elements += own.size();
  return static_cast<double>(elements) / static_cast<double>(arena_.layout().block_elements());
}

std::size_t Replica::memory_bytes() const {
  return arena_.layout().block_bytes() + exchange_bytes() + optimizer_bytes() + workers_->memory_bytes() +
         (average_ ? average_->bytes() : 0);
}

std::size_t Replica::exchange_bytes() const {
  return arena_.layout().block_bytes() + (exact_ ? exact_->bytes() : 0) + rounded_->memory.bytes();
}

std::size_t Replica::optimizer_bytes() const {
  std::size_t bytes = 0;
  for (const OptimizerSlot& slot : optimizer_->slots()) bytes += slot.block.bytes();
  return bytes;
}

}  // namespace tutti
