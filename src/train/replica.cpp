#include "replica.hpp"

#include "tutti/base/digest.hpp"

#include "elements.hpp"
#include "paced_time.hpp"
#include "replica_proof.hpp"
#include "state_arrays.hpp"
#include "sum_over_ranks.hpp"

#include <algorithm>
#include <numeric>
#include <span>

namespace tutti {
namespace {

// The processor is made ready for this thread before the first plan is made on it.
Backend& entered(Backend& backend, int threads) {
  backend.enter_compute_thread(threads);
  return backend;
}

std::unique_ptr<ExactSum> make_exact_sum(const TrainerParts& parts, const TrainerOptions& options,
                                         const Tensor& gradients) {
  if (options.exchange.kind != Exchange::exact) return nullptr;
  return std::make_unique<ExactSum>(parts.backend, parts.communicator, parts.network.layout(), gradients,
                                    options.num_parts);
}

LoaderPlan loader_plan(const TrainerOptions& options, IndexRange parts, RankStatus& rank_status) {
  return {.batch_size = options.batch_size,
          .num_parts = options.num_parts,
          .parts = parts,
          .last_batch = options.last_batch,
          .order = {.shuffle = options.shuffle, .seed = options.seed},
          .steps_ahead = options.steps_ahead,
          .readers = options.readers,
          .recipe = options.recipe,
          .after_piece = [&rank_status] { rank_status.note_progress(); }};
}

// What a bit that flipped has made infinite must not reach all ranks' weights, or no proof finds the rank.
int steps_late(const TrainerOptions& options) {
  return options.safeguards.verify_every_steps > 0 ? 0 : options.steps_ahead;
}

// Of a piece's digest under its tensor's name.
std::uint64_t start_of(const std::string& name, const ParameterSlice& slice, const OwnedPiece& piece) {
  return digest_start(name, static_cast<std::uint64_t>(piece.elements.begin - slice.offset));
}

}  // namespace

Replica::Replica(const TrainerParts& parts, const TrainerOptions& options, RankStatus& rank_status)
    : backend_(entered(parts.backend, options.threads)),
      communicator_(parts.communicator),
      rank_status_(rank_status),
      seed_(options.seed),
      stream_(backend_.make_stream()),
      timeline_(backend_, *stream_, rank_status_),
      arena_(parts.network.layout(), backend_, communicator_.allocate(parts.network.layout().block_bytes())),
      weights_(parts.network, backend_, arena_.weights()),
      dealer_(backend_, communicator_, rank_status_, options),
      loader_(parts.train, backend_, loader_plan(options, dealer_.parts(), rank_status_)),
      team_({.network = parts.network,
             .weights = weights_,
             .backend = backend_,
             .stream = *stream_,
             .players = static_cast<int>(std::min<std::int64_t>(options.side_by_side, dealer_.most_parts())),
             .threads = options.threads,
             .label_smoothing = options.label_smoothing,
             .after_part = options.after_part,
             .rank_status = rank_status}),
      float_total_(backend_, arena_.gradients()),
      exact_(make_exact_sum(parts, options, arena_.gradients())),
      finite_check_({.backend = backend_,
                     .communicator = communicator_,
                     .arena = arena_,
                     .exact = exact_.get(),
                     .most_players = dealer_.most_parts_of_any(),
                     .steps_late = steps_late(options),
                     .on_not_finite = options.safeguards.on_not_finite,
                     .hosts = parts.hosts}),
      ownership_(options.exchange.owners(), arena_.layout(), cut_buckets(arena_.layout(), options.bucket_bytes),
                 {.rank = communicator_.rank(), .size = communicator_.size()}),
      sync_(communicator_, ownership_, arena_.gradients(), exact_.get()),
      optimizer_(make_optimizer(options.optimizer, optimizer_parts())) {
  stream_->while_waiting([this] {
    communicator_.progress();
    timeline_.look();
  });
  for (const std::int64_t samples : loader_.slice_sizes()) team_.plan(samples, LayerMode::training);
  const bool alone = communicator_.size() == 1;
  team_.collect_gradients(total(), dealer_.most_parts(),
                          alone ? std::vector<std::int64_t>{} : ownership_.bucket_ends());
  initialize(parts.network, options.initializer, options.seed, backend_, arena_.weights());
  weights_.refresh(*stream_);
}

std::optional<std::uint64_t> Replica::step(const StepRequest& request) {
  StepClock clock(*stream_, request.times);
  rank_status_.begin_step(request.step + 1, Phase::data);
  const TeamStep step{
      .batches = loader_.next(*stream_), .seed = seed_, .step = request.step, .measured = dealer_.measures()};
  clock.end(&StepTimes::input);
  const auto give_away = [&](std::int64_t final_elements) {
    clock.end_stretch(final_elements);
    rank_status_.enter(Phase::exchange);
    this->ready(final_elements);
    clock.end(&StepTimes::driving);
    rank_status_.enter(Phase::backward);
  };
  team_.play(step, give_away);
  Verdict verdict = exchanged(request.step, step.batches.batches);
  for (; verdict == Verdict::again; verdict = exchanged(request.step, step.batches.batches)) {
    team_.take_back();
    clock.start_again();
    team_.play(step, give_away);
  }
  clock.end(&StepTimes::waiting);
  if (verdict == Verdict::left_out) {
    team_.take_back();
    return std::nullopt;
  }
  std::optional<std::uint64_t> gradients_digest;
  if (request.digests_gradients) gradients_digest = this->gradients_digest();
  if (request.proof != nullptr) request.proof->note(*stream_);
  update(request, clock);
  return gradients_digest;
}

void Replica::step_with(const Tensor& gradients, const StepRequest& request) {
  const auto ready = [this](std::int64_t final_elements) { this->ready(final_elements); };
  Verdict verdict = Verdict::again;
  while (verdict == Verdict::again) {
    team_.take(gradients, ready);
    verdict = exchanged(request.step);
  }
  if (verdict == Verdict::left_out) return;
  StepClock clock(*stream_, request.times);
  update(request, clock);
}

void Replica::deal() {
  if (dealer_.after_step(*stream_, team_.seconds_per_part())) loader_.assign(dealer_.parts());
}

Replica::Verdict Replica::exchanged(std::int64_t step, std::span<const Batch> batches) {
  rank_status_.enter(Phase::exchange);
  if (exact_) exact_->pass_on_largest(*stream_);
  finite_check_.pass_on(*stream_, team_.bad_losses(), batches);
  rank_status_.enter(Phase::waiting);
  sync_.finish(*stream_);
  if (!finite_check_.judge(*stream_, step + 1)) return Verdict::left_out;
  return !exact_ || exact_->judge(*stream_) ? Verdict::stands : Verdict::again;
}

// Those who own elements update them; then all have all.
void Replica::update(const StepRequest& request, StepClock& clock) {
  rank_status_.enter(Phase::update);
  optimizer_->apply(*stream_, arena_, request.learning_rate, request.updates + 1);
  update_statistics();
  clock.end(&StepTimes::update);
  pass_on_weights();
  clock.end(&StepTimes::waiting);
  rank_status_.enter(Phase::update);
  weights_.refresh(*stream_);
  clock.end(&StepTimes::update);
}

void Replica::pass_on_weights() {
  rank_status_.enter(Phase::waiting);
  gather_owned(communicator_, ownership_, arena_.weights(), *stream_);
}

double Replica::owned_share() const {
  std::int64_t elements = 0;
  for (const IndexRange& own : ownership_.owned()) elements += own.size();
  return static_cast<double>(elements) / static_cast<double>(arena_.layout().block_elements());
}

StepTimes Replica::paced_step(const StepTimes& pace, std::int64_t step) {
  StepTimes times;
  PacedTime time;
  times.input = time.sleep(pace.input);
  backend_.fill_zero(*stream_, arena_.gradients());
  GradientTotal& total = this->total();
  total.begin(*stream_);
  total.add(*stream_, {0, arena_.gradients()}, {0, arena_.gradients().elements()});
  for (const StepTimes::Stretch& stretch : pace.compute) {
    times.compute.push_back({.seconds = time.sleep(stretch.seconds), .final_elements = stretch.final_elements});
    ready(stretch.final_elements);
    times.driving += time.lap();
  }
  while (exchanged(step) == Verdict::again) {
    team_.take(arena_.gradients(), [this](std::int64_t final_elements) { ready(final_elements); });
  }
  stream_->synchronize();
  times.waiting = time.lap();
  times.update = time.sleep(pace.update * owned_share());
  pass_on_weights();
  stream_->synchronize();
  times.waiting += time.lap();
  return times;
}

// The tail of the gradients holds the step's statistics, averaged over all parts by their samples.
void Replica::update_statistics() {
  const ParameterLayout& layout = arena_.layout();
  for (const IndexRange& own : within(ownership_.owned(), {layout.trained_elements(), layout.block_elements()})) {
    backend_.blend(*stream_, elements_of(arena_.weights(), own), elements_of(arena_.gradients(), own),
                   static_cast<float>(BatchNormSpec::kMomentum));
  }
}

void Replica::add_to(TrainState& state, const std::optional<FileShare>& share) {
  const ParameterLayout& layout = arena_.layout();
  ArrayDeal deal = deal_arrays(share, layout, *optimizer_);
  state.parameters = arrays_of(backend_, *stream_, arena_.weights(), deal.take(layout.trained()), "");
  state.statistics = arrays_of(backend_, *stream_, arena_.weights(), deal.take(layout.statistics()), "");
  const auto gather = [&] { return gather_state(optimizer_parts(), *stream_, *optimizer_, deal); };
  state.optimizer = passes_on_weights() ? rank_status_.wait_for_ranks(gather) : gather();
  if (exact_ && share && share->file == 0) state.exchange = exact_->state();
}

void Replica::restore(const TrainState& state) {
  const ParameterLayout& layout = arena_.layout();
  fill_from_arrays(backend_, *stream_, arena_.weights(), layout.trained(), "", state.parameters);
  fill_from_arrays(backend_, *stream_, arena_.weights(), layout.statistics(), "", state.statistics);
  restore_state(optimizer_parts(), *stream_, *optimizer_, state.optimizer);
  weights_.refresh(*stream_);
  if (exact_) exact_->restore(*stream_, state.exchange);
}

std::vector<std::string> Replica::start_from(const TrainState& state) {
  auto left = fill_but_for_head(backend_, *stream_, {arena_.layout(), arena_.weights()}, state);
  weights_.refresh(*stream_);
  return left;
}

std::optional<std::uint64_t> Replica::statistics_digest() {
  const auto statistics = arena_.layout().statistics();
  if (statistics.empty()) return std::nullopt;
  return digest_of(backend_, *stream_, arena_.weights(), statistics);
}

std::uint64_t Replica::gradients_digest() {
  std::vector<DigestedTensor> pieces;
  for (const OwnedPiece& piece : owned_pieces(optimizer_parts())) {
    const ParameterSlice& slice = arena_.layout().trained()[piece.range];
    pieces.push_back({elements_of(arena_.gradients(), piece.elements), start_of(slice.name, slice, piece)});
  }
  return sum_of_owned(pieces);
}

std::uint64_t Replica::optimizer_digest() {
  std::vector<DigestedTensor> pieces;
  for (const OptimizerSlot& slot : optimizer_->slots()) {
    for (const OwnedPiece& piece : owned_pieces(optimizer_parts())) {
      const ParameterSlice& slice = arena_.layout().trained()[piece.range];
      pieces.push_back({elements_of(slot.block, piece.place), start_of(slot.name + "/" + slice.name, slice, piece)});
    }
  }
  return sum_of_owned(pieces);
}

std::uint64_t Replica::sum_of_owned(const std::vector<DigestedTensor>& pieces) {
  const auto digests = digests_of(backend_, *stream_, pieces);
  const std::uint64_t sum = std::accumulate(digests.begin(), digests.end(), std::uint64_t{0});
  if (!passes_on_weights()) return sum;
  return rank_status_.wait_for_ranks([&] { return sum_over_ranks(backend_, communicator_, *stream_, sum); });
}

std::vector<ReplicatedTensor> Replica::replicated() const {
  const ParameterLayout& layout = arena_.layout();
  std::vector<ReplicatedTensor> tensors;
  const auto append = [&](const std::string& group, const Tensor& block, std::span<const ParameterSlice> slices) {
    for (const ParameterSlice& slice : slices) tensors.push_back({group + slice.name, slice_of(block, slice)});
  };
  append("parameters/", arena_.weights(), layout.trained());
  append("statistics/", arena_.weights(), layout.statistics());
  for (const OptimizerSlot& slot : optimizer_->slots()) {
    if (!passes_on_weights()) append("optimizer/" + slot.name + "/", slot.block, layout.trained());
  }
  if (exact_) tensors.push_back({"exchange/exact/exponents", exact_->exponents()});
  return tensors;
}

std::vector<HeldBlock> Replica::held_blocks() const {
  const ParameterLayout& layout = arena_.layout();
  std::vector<HeldBlock> blocks{{"weights", arena_.weights(), layout.trained()},
                                {"statistics", arena_.weights(), layout.statistics()}};
  if (ownership_.owners() != Owners::everyone) return blocks;
  blocks.push_back({"gradients", arena_.gradients(), layout.slices()});
  for (const OptimizerSlot& slot : optimizer_->slots()) blocks.push_back({slot.name, slot.block, layout.trained()});
  return blocks;
}

void Replica::flip(const BitFlip& flip) {
  flip_bit(backend_, *stream_, held_blocks(), flip);
  weights_.refresh(*stream_);
}

std::size_t Replica::optimizer_bytes() const {
  std::size_t bytes = 0;
  for (const OptimizerSlot& slot : optimizer_->slots()) bytes += slot.block.bytes();
  return bytes;
}

}  // namespace tutti
