#include "tutti/train/replica_state.hpp"

#include "tutti/base/digest.hpp"
#include "tutti/base/error.hpp"
#include "tutti/train/replica.hpp"

#include "exchange.hpp"
#include "finite_check.hpp"
#include "recorded_work.hpp"
#include "state_arrays.hpp"
#include "step_timer.hpp"
#include "weight_average.hpp"

#include <fmt/format.h>

namespace tutti {
namespace {

ElementType type_of_sums(const TrainerOptions& exact) {
  const Wire wire = exact.exchange.wire.value_or(default_wire(Exchange::exact, exact.num_parts));
  return wire == Wire::int32 ? ElementType::i32 : ElementType::i64;
}

}  // namespace

ReplicaState::ReplicaState(const TrainerContext& context, const TrainerOptions& options, const RankContext& rank)
    : rank_(rank),
      backend_(rank.backend),
      stream_(rank.stream),
      arena_(context.network.layout(), backend_, rank.communicator.allocate(context.network.layout().block_bytes())),
      weights_(context.network, backend_, arena_.weights()),
      ownership_(std::make_unique<Ownership>(
          options.exchange.owners(), arena_.layout(), make_buckets(arena_.layout(), options.bucket_bytes),
          RankPosition{.rank = rank.communicator.rank(), .size = rank.communicator.size()})),
      optimizer_(make_optimizer(options.optimizer, optimizer_context())),
      recorded_updates_(std::make_unique<RecordedWork>(backend_)),
      average_(options.average.decay == 0
                   ? nullptr
                   : std::make_unique<WeightAverage>(options.average, backend_, arena_.weights())) {
  if (options.exchange.kind == Exchange::exact) {
    auto exact = std::make_unique<ExactAccumulator>(rank, arena_.layout(), arena_.gradients(), options.num_parts,
                                                    type_of_sums(options));
    exact_ = exact.get();
    total_ = std::move(exact);
  } else {
    total_ = std::make_unique<GradientAccumulator>(backend_, arena_.gradients());
  }
  const bool rounds = options.exchange.rounds() && !is_alone();
  exchange_ =
      std::make_unique<GradientExchange>(rank.communicator, *ownership_,
                                         ExchangedGradients{.gradients = arena_.gradients(),
                                                            .exact = exact_,
                                                            .in_bf16 = rounds ? arena_.layout().trained_elements() : 0,
                                                            .backend = &backend_});
}

ReplicaState::~ReplicaState() = default;

bool ReplicaState::is_alone() const { return rank_.communicator.size() == 1; }

void ReplicaState::initialize(const Network& network, const TrainerOptions& options) {
  tutti::initialize(network, options.initializer, options.seed, backend_, arena_.weights());
  begin_with_weights();
}

void ReplicaState::begin_with_weights() {
  weights_.refresh(stream_);
  if (average_) average_->reset(stream_);
}

void ReplicaState::before_parts(PartsOfStep& parts) {
  for (StepCheck* check : checks_) check->before_parts(parts);
}

void ReplicaState::set_gradients(const Tensor& gradients) {
  total_->begin(stream_);
  if (gradients.data == nullptr) return total_->clear(stream_);
  if (total_->sums_in_place()) backend_.copy(stream_, arena_.gradients(), gradients);
  total_->add(stream_, {0, gradients}, {0, gradients.elements()});
}

void ReplicaState::start_ready_buckets(std::int64_t ready_elements) {
  if (!is_alone() && exchange_->is_due(ready_elements)) {
    for (StepCheck* check : checks_) check->before_exchange(ready_elements);
  }
  exchange_->start_ready_buckets(ready_elements, stream_);
}

StepOutcome ReplicaState::finish_exchange(const PartsOfStep& parts, StepResult& result) {
  if (!parts.checked_in_update) rank_.status.enter(Phase::exchange);
  for (StepCheck* check : checks_) check->after_parts(parts);
  if (parts.delays_exchange) exchange_->start_ready_buckets(arena_.layout().block_elements(), stream_);
  // Phase::waiting begins when this rank has nothing left to do until the other ranks arrive.
  if (!parts.checked_in_update) rank_.status.enter(Phase::waiting);
  exchange_->finish(stream_);
  StepOutcome outcome = StepOutcome::valid;
  for (auto check = checks_.begin(); check != checks_.end() && outcome == StepOutcome::valid; ++check) {
    outcome = (*check)->after_exchange(parts, result);
  }
  return outcome;
}

StepOutcome ReplicaState::finish_exchange(std::int64_t step) {
  const StepBatches none;
  StepResult result;
  return finish_exchange({.batches = none, .step = step}, result);
}

// Owners update their elements; then the weights are gathered, so that every rank has all of them.
void ReplicaState::update(const StepRequest& request, const RecordedCheck* check) {
  StepTimer clock(stream_, request.times);
  rank_.status.enter(Phase::update);
  optimizer_->set_step(stream_, request.learning_rate, request.updates + 1, request.epoch);
  if (gathers_weights()) {
    update_owned(nullptr);
    clock.end(&StepTimes::update);
    gather_weights();
    clock.end(&StepTimes::waiting);
    rank_.status.enter(Phase::update);
    weights_.refresh(stream_);
  } else if (check != nullptr) {
    recorded_updates_->run(stream_, check->check.key(check->parts, check->unfinished), [&] {
      check->check.check_in_update(check->parts, check->unfinished);
      update_owned(check->unfinished);
    });
  } else {
    recorded_updates_->run(stream_, {}, [this] { update_owned(nullptr); });
  }
  if (average_ && average_->add(stream_, request.average_share)) weights_.refresh(stream_);
  clock.end(&StepTimes::update);
  if (check != nullptr) check->check.after_update(check->parts);
}

void ReplicaState::update_owned(UnfinishedGradients* unfinished) {
  // The tail of the gradients holds the step's statistics, averaged over all parts by their samples.
  for (const IndexRange& own : ownership_->owned()) {
    update_statistics(backend_, stream_, arena_.layout(), {arena_.weights(), arena_.gradients(), own.begin, own.end});
  }
  if (unfinished != nullptr) return optimizer_->update(stream_, arena_, {*unfinished, weights_.all()});
  optimizer_->apply(stream_, arena_);
  if (!gathers_weights()) weights_.refresh(stream_);
}

void ReplicaState::gather_weights() {
  rank_.status.enter(Phase::waiting);
  gather_owned(rank_.communicator, *ownership_, arena_.weights(), stream_);
}

void ReplicaState::with_average(const std::function<void()>& work) {
  const auto swap = [this] {
    if (!average_) return;
    average_->swap(stream_);
    weights_.refresh(stream_);
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

void ReplicaState::copy_to(TrainState& state, const std::optional<FileShard>& shard) {
  const ParameterLayout& layout = arena_.layout();
  ShardSelector selector(shard, layout, *optimizer_, average_ != nullptr);
  state.parameters = arrays_of(backend_, stream_, arena_.weights(), selector.select_next(layout.trained()), "");
  state.statistics = arrays_of(backend_, stream_, arena_.weights(), selector.select_next(layout.statistics()), "");
  // Between steps, the gradients are not needed.
  const auto gather = [&] {
    return gather_state(optimizer_context(), stream_, *optimizer_, selector, arena_.gradients());
  };
  state.optimizer = gathers_weights() ? rank_.status.wait_for_ranks(gather) : gather();
  if (average_) {
    state.averages = arrays_of(backend_, stream_, average_->values(), selector.select_next(layout.slices()), "");
  }
  if (exact_ != nullptr && shard && shard->file == 0) state.exchange = exact_->state();
}

void ReplicaState::restore(const TrainState& state) {
  fill_weights(backend_, stream_, arena_.weights(), arena_.layout(), state);
  restore_state(optimizer_context(), stream_, *optimizer_, state.optimizer);
  weights_.refresh(stream_);
  if (average_) fill_slices(backend_, stream_, average_->values(), arena_.layout().slices(), state.averages);
  if (exact_ != nullptr) exact_->restore(state.exchange);
}

std::vector<std::string> ReplicaState::initialize_from(const TrainState& state, bool new_head) {
  auto left = fill_except_head(backend_, stream_, arena_, state, new_head);
  begin_with_weights();
  return left;
}

OptimizerContext ReplicaState::optimizer_context() const {
  return {backend_, rank_.communicator, arena_.layout(), *ownership_};
}

std::vector<StateTensor> ReplicaState::tensors() const {
  const ParameterLayout& layout = arena_.layout();
  std::vector<StateTensor> tensors;
  const auto add = [&](const OptimizerSlot& of, const std::string& group, std::span<const ParameterSlice> slices) {
    for (const ParameterSlice& slice : slices) {
      tensors.push_back({.target = {of.name, slice.name, slice.elements()},
                         .array = group.empty() ? "" : group + slice.name,
                         .values = slice_of(of.block, slice)});
    }
  };
  add({"weights", arena_.weights()}, "parameters/", layout.trained());
  add({"statistics", arena_.weights()}, "statistics/", layout.statistics());
  if (average_) add({"averages", average_->values()}, "averages/", layout.slices());
  if (gathers_weights()) return tensors;
  add({"gradients", arena_.gradients()}, "", layout.slices());
  for (const OptimizerSlot& slot : optimizer_->slots()) add(slot, "optimizer/" + slot.name + "/", layout.trained());
  return tensors;
}

std::uint64_t ReplicaState::weights_digest() {
  return digest_of(backend_, stream_, arena_.weights(), arena_.layout().trained());
}

std::optional<std::uint64_t> ReplicaState::statistics_digest() {
  const auto statistics = arena_.layout().statistics();
  if (statistics.empty()) return std::nullopt;
  return digest_of(backend_, stream_, arena_.weights(), statistics);
}

std::optional<std::uint64_t> ReplicaState::averages_digest() {
  if (!average_) return std::nullopt;
  return digest_of(backend_, stream_, average_->values(), arena_.layout().slices());
}

std::uint64_t ReplicaState::gradients_digest() {
  return owned_digest({{"", arena_.gradients()}}, &OwnedPiece::elements);
}

std::uint64_t ReplicaState::optimizer_digest() { return owned_digest(optimizer_->slots(), &OwnedPiece::packed); }

std::uint64_t ReplicaState::owned_digest(const std::vector<OptimizerSlot>& blocks, IndexRange OwnedPiece::*where) {
  const auto slices = arena_.layout().trained();
  std::vector<DigestedTensor> pieces;
  for (const auto& [name, block] : blocks) {
    const std::string prefix = name.empty() ? "" : name + "/";
    for (const OwnedPiece& piece : ownership_->pieces_of(ranges_of(slices))) {
      const ParameterSlice& slice = slices[piece.range];
      const auto first = static_cast<std::uint64_t>(piece.elements.begin - slice.offset);
      pieces.push_back({elements_of(block, piece.*where), digest_start(prefix + slice.name, first)});
    }
  }
  const std::uint64_t sum = digest_of(backend_, stream_, pieces);
  return gathers_weights() ? rank_.all_reduce(sum) : sum;
}

std::size_t ReplicaState::exchange_bytes() const {
  return arena_.layout().block_bytes() + (exact_ != nullptr ? exact_->bytes() : 0) + exchange_->bytes();
}

std::size_t ReplicaState::optimizer_bytes() const {
  std::size_t bytes = 0;
  for (const OptimizerSlot& slot : optimizer_->slots()) bytes += slot.block.bytes();
  return bytes;
}

std::size_t ReplicaState::memory_bytes() const {
  return arena_.layout().block_bytes() + exchange_bytes() + optimizer_bytes() + (average_ ? average_->bytes() : 0);
}

std::int64_t ReplicaState::estimate_bytes(const ReplicaShape& shape) {
  const TrainerOptions& options = shape.options;
  const ParameterLayout& layout = shape.network.layout();
  const auto block = static_cast<std::int64_t>(layout.block_bytes());
  const std::int64_t trained = layout.trained_elements() * std::int64_t{sizeof(float)};
  const auto of_optimizer = static_cast<std::int64_t>(optimizer_slots(options.optimizer)) * trained;
  std::int64_t bytes = 2 * block;  // weights and gradients
  switch (options.exchange.owners()) {
    case Owners::all:
      bytes += of_optimizer;
      break;
    case Owners::sharded:
      bytes += of_optimizer / shape.ranks;
      break;
    case Owners::root:
      bytes += shape.rank == 0 ? of_optimizer : 0;
      break;
  }
  if (options.exchange.kind == Exchange::exact) {
    bytes += layout.block_elements() * static_cast<std::int64_t>(bytes_of(type_of_sums(options)));
  }
  if (options.exchange.rounds() && shape.ranks > 1) bytes += trained / 2;  // rounded to bf16
  if (options.average.decay > 0) bytes += 2 * block;                       // the average, and a spare block
  return bytes;
}

void flip(ReplicaState& state, const BitFlip& flip) {
  const RankContext& rank = state.rank();
  for (const auto& [target, array, values] : state.tensors()) {
    if (target.block != flip.block || target.name != flip.tensor || flip.element >= target.elements) continue;
    const Tensor element = elements_of(values, {flip.element, flip.element + 1});
    std::uint32_t bits = 0;
    const Tensor on_host{&bits, Shape{1}, ElementType::f32, MemorySpace::host};
    rank.backend.copy(rank.stream, on_host, element);
    rank.stream.synchronize();
    bits ^= std::uint32_t{1} << flip.bit;
    rank.backend.copy(rank.stream, element, on_host);
    rank.stream.synchronize();
    return state.weights().refresh(rank.stream);
  }
  throw Error(ErrorSource::internal, fmt::format("no element {} of {} {}", flip.element, flip.block, flip.tensor));
}

}  // namespace tutti
