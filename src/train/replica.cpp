#include "tutti/train/replica.hpp"

#include "finite_check.hpp"
#include "part_audit.hpp"
#include "part_balancer.hpp"
#include "part_workers.hpp"
#include "phase_timeline.hpp"
#include "replica_verifier.hpp"
#include "step_timer.hpp"

namespace tutti {
namespace {

// Initializes the calling thread for the backend. It is called in the first initializer of Replica, since the backend
// may prepare layers only afterwards.
Backend& initialize_thread_of(Backend& backend, int threads) {
  backend.enter_compute_thread(threads);
  return backend;
}

// The tensors that are equal on all ranks between steps: weights, statistics, the exponents of the exact exchange, and
// the optimizer's state if every rank updates everything.
std::vector<ReplicatedTensor> replicated(ReplicaState& state) {
  std::vector<ReplicatedTensor> tensors;
  for (const StateTensor& tensor : state.tensors()) {
    if (!tensor.array.empty()) tensors.push_back({tensor.array, tensor.values});
  }
  if (state.exact() != nullptr) tensors.push_back({"exchange/exact/exponents", state.exact()->exponents()});
  return tensors;
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
      state_(std::make_unique<ReplicaState>(context, options, *context_)),
      balancer_(std::make_unique<PartBalancer>(*context_, options)),
      loader_(context.train, backend_,
              {.batch_size = options.batch_size,
               .num_parts = options.num_parts,
               .parts = balancer_->parts(),
               .last_batch = options.last_batch,
               .order = {.shuffle = options.shuffle, .seed = options.seed, .labels = context.train.labels()},
               .steps_ahead = options.steps_ahead,
               .readers = options.readers,
               .recipe = options.recipe,
               .class_weights = options.class_weights,
               .after_piece = [&status = context_->status] { status.note_progress(); }}),
      norm_sums_(options.batch_norm == BatchNorm::part
                     ? nullptr
                     : std::make_unique<NormSums>(context.network, *context_, context.norm_communicator)),
      workers_(std::make_unique<PartWorkers>(
          WorkersRequest{.network = context.network,
                         .weights = state_->weights(),
                         .backend = backend_,
                         .stream = *stream_,
                         .workers = options.workers(balancer_->max_parts()),
                         .threads = options.threads,
                         .loss = options.loss(),
                         .restores_sums = options.exchange.kind == Exchange::exact ||
                                          options.safeguards.on_not_finite == OnNotFinite::skip,
                         .rank_status = context_->status,
                         .norm_sums = norm_sums_.get()})) {
  stream_->set_wait_callback([this] {
    context_->communicator.progress();
    timeline_->poll();
  });
  for (const std::int64_t samples : loader_.part_batch_sizes()) workers_->plan(samples, LayerMode::training);
  workers_->collect_gradients(state_->total(), balancer_->max_parts(),
                              state_->is_alone() ? std::vector<std::int64_t>{} : state_->ownership().bucket_ends());
  state_->initialize(context.network, options);

  const Safeguards& safeguards = options.safeguards;
  const bool verifies = safeguards.verify_every_steps > 0;
  if (safeguards.audit_every_steps > 0) {
    audit_ = std::make_unique<PartAudit>(
        AuditedReplica{context, options, *state_, loader_, *balancer_, *workers_, norm_sums_.get()});
  }
  // With --verify-replicas the check must not be delayed: an infinity from a flipped bit would otherwise spread to all
  // ranks through the exchange, and the replicas would be equal.
  finite_check_ =
      std::make_unique<FiniteCheck>(FiniteCheckRequest{.context = *context_,
                                                       .arena = state_->arena(),
                                                       .exact = state_->exact(),
                                                       .bad_losses = workers_->bad_losses(),
                                                       .max_workers_of_any = balancer_->max_parts_of_any(),
                                                       .max_delay_steps = verifies ? 0 : options.steps_ahead,
                                                       .on_not_finite = safeguards.on_not_finite,
                                                       .hosts = context.hosts});
  if (verifies && !state_->is_alone()) {
    verifier_ = std::make_unique<ReplicaVerifier>(*context_, replicated(*state_), context.hosts);
  }
  // A fault that an audit can name may also leave values that are not finite, and the exact exchange needs finite ones.
  StepCheck* const recorded_before_gathering = state_->gathers_weights() ? verifier_.get() : nullptr;
  std::vector<StepCheck*> checks{audit_.get(), finite_check_.get(), state_->exact(), recorded_before_gathering};
  std::erase(checks, nullptr);
  state_->pass(checks);
  may_check_in_update_ =
      state_->is_alone() && !state_->gathers_weights() && state_->exact() == nullptr && finite_check_->is_delayed();
}

Replica::~Replica() = default;

StepResult Replica::step(const StepRequest& request) {
  StepTimer clock(*stream_, request.times);
  context_->status.begin_step(request.step + 1, Phase::data);
  // Then nothing is waited for between the gradients and the update: neither other ranks nor the host.
  const bool checked_in_update = may_check_in_update_ && request.times == nullptr;
  const PartsOfStep parts{
      .batches = loader_.next(*stream_),
      .seed = seed_,
      .step = request.step,
      .first_layer = request.first_layer,
      .timed = balancer_->times_next_step(),
      .may_leave_unfinished = checked_in_update && state_->reads_gradients_once() && !request.digests_gradients,
      .checked_in_update = checked_in_update};
  clock.end(&StepTimes::input);
  StepResult result{.weight = parts.batches.weight.value_or(0), .own_weight = parts.batches.own_weight};
  StepOutcome outcome = compute_and_exchange(parts, clock, result);
  while (outcome == StepOutcome::repeat) {
    ++result.repetitions;
    workers_->restore_sums();
    clock.restart();
    outcome = compute_and_exchange(parts, clock, result);
  }
  clock.end(&StepTimes::waiting);
  if (outcome == StepOutcome::skipped) workers_->restore_sums();
  if (outcome != StepOutcome::valid) return result;
  if (request.digests_gradients) result.gradients_digest = state_->gradients_digest();
  const RecordedCheck check{*finite_check_, parts, workers_->unfinished()};
  state_->update(request, checked_in_update ? &check : nullptr);
  return result;
}

StepOutcome Replica::compute_and_exchange(PartsOfStep parts, StepTimer& clock, StepResult& result) {
  state_->before_parts(parts);
  workers_->compute(parts, [&](std::int64_t ready_elements) {
    clock.end_interval(ready_elements);
    if (parts.delays_exchange) return;
    // Phase::exchange is this rank's own work for the exchange: starting collectives and driving their progress.
    context_->status.enter(Phase::exchange);
    state_->start_ready_buckets(ready_elements);
    clock.end(&StepTimes::overlapped_exchange);
    context_->status.enter(Phase::backward);
  });
  return state_->finish_exchange(parts, result);
}

void Replica::balance_parts() {
  if (balancer_->after_step(workers_->seconds_per_part())) loader_.assign(balancer_->parts());
}

void Replica::synchronize() {
  stream_->synchronize();
  timeline_->synchronize();
  finite_check_->synchronize();
}

std::size_t Replica::memory_bytes() const { return state_->memory_bytes() + workers_->memory_bytes(); }

ReplicaEstimate estimate_replica(const ReplicaShape& shape) {
  const TrainerOptions& options = shape.options;
  const auto block = static_cast<std::int64_t>(shape.network.layout().block_bytes());
  const int max_parts =
      max_parts_by_rank(options.part_map, options.num_parts, shape.ranks).at(static_cast<std::size_t>(shape.rank));
  const std::int64_t samples = shape.samples_per_part();
  const bool audits = options.safeguards.audit_every_steps > 0;

  ReplicaEstimate estimate;
  estimate.activations = PartWorkers::estimate_activations(shape, max_parts, samples);
  estimate.memory = ReplicaState::estimate_bytes(shape) + estimate.activations +
                    PartWorkers::estimate_gradients(shape, max_parts) +
                    (audits && options.batch_norm == BatchNorm::global ? 2 * block : 0);
  // Balancing moves batches between ranks: all ranks together need as many as at first.
  const std::int64_t parts =
      PartMap::chosen(options.part_map.parts_by_rank, options.num_parts, shape.ranks).parts_of(shape.rank).size();
  const auto part = samples * shape.network.sample().elements() * std::int64_t{sizeof(float)};
  estimate.batches = (options.steps_ahead + 1) * parts * part + (audits ? part : 0);
  return estimate;
}

}  // namespace tutti
