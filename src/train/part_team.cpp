#include "part_team.hpp"

#include "tutti/base/timing.hpp"

#include "elements.hpp"
#include "sum_over_ranks.hpp"

#include <algorithm>
#include <optional>
#include <span>
#include <stop_token>
#include <utility>

namespace tutti {
namespace {

constexpr std::size_t kSumsBytes = LossSums::kFigures * sizeof(std::int64_t);

Tensor figures_of(const Buffer& sums) { return sums.view(Shape{LossSums::kFigures}, ElementType::i64); }
Tensor sums_of(const Player& player) { return figures_of(player.sums); }
Tensor kept_sums_of(const Player& player) { return figures_of(player.kept_sums); }

// Time, but for what is done aside.
class WorkClock {
 public:
  template <class Action>
  void aside(Action action) {
    const Stopwatch pause;
    action();
    pauses_ += pause.seconds();
  }
  double seconds() const { return watch_.seconds() - pauses_; }

 private:
  Stopwatch watch_;
  double pauses_ = 0;
};

}  // namespace

PartTeam::PartTeam(const TeamRequest& request)
    : backend_(request.backend), after_part_(request.after_part), rank_status_(request.rank_status) {
  for (std::size_t number = 0; number < static_cast<std::size_t>(std::max(1, request.players)); ++number) {
    if (number > 0) streams_.push_back(backend_.make_stream());
    players_.push_back(std::unique_ptr<Player>(
        new Player{.number = number,
                   .stream = number == 0 ? request.stream : *streams_.back(),
                   .context = PartContext(request.network, request.weights, backend_, request.label_smoothing),
                   .sums = backend_.allocate(kSumsBytes),
                   .kept_sums = backend_.allocate(kSumsBytes)}));
    players_.back()->context.after_layers(
        [this, number] { number == 0 ? rank_status_.end_layer() : rank_status_.note_progress(); });
  }
  for (std::size_t i = 1; i < players_.size(); ++i) {
    threads_.emplace_back([this, i](const std::stop_token& stop) { follow(*players_[i], stop); });
  }
  each([&](Player&) { backend_.enter_compute_thread(request.threads); });
}

PartTeam::~PartTeam() = default;

void PartTeam::plan(std::int64_t samples, LayerMode mode) {
  each([&](Player& player) { player.context.plan(samples, mode); });
}

void PartTeam::collect_gradients(GradientTotal& total, std::int64_t parts, std::vector<std::int64_t> stops) {
  total_ = &total;
  stops_ = std::move(stops);
  sum_ = std::make_unique<PartSum>(total, size() > 1 ? PartSum::Streams::several : PartSum::Streams::one);
  for (const auto& player : players_) {
    std::size_t elsewhere = player->number;  // its first part that needs memory of its own
    while (elsewhere < static_cast<std::size_t>(parts) && plays_in_total(*player, elsewhere)) elsewhere += size();
    if (elsewhere < static_cast<std::size_t>(parts)) {
      player->gradients = backend_.allocate(total.gradients().bytes());
    }
  }
}

void PartTeam::each(const std::function<void(Player&)>& work) {
  {
    const std::scoped_lock lock(mutex_);
    work_ = &work;
    failure_ = nullptr;
    busy_ = players_.size() - 1;
    ++calls_;
  }
  called_.notify_all();
  carry_out(*players_.front());
  std::unique_lock lock(mutex_);
  done_.wait(lock, [this] { return busy_ == 0; });
  if (failure_) std::rethrow_exception(std::exchange(failure_, nullptr));
}

void PartTeam::follow(Player& player, const std::stop_token& stop) {
  for (std::uint64_t seen = 0;; ++seen) {
    {
      std::unique_lock lock(mutex_);
      if (!called_.wait(lock, stop, [&] { return calls_ != seen; })) return;
    }
    carry_out(player);
    const std::scoped_lock lock(mutex_);
    if (--busy_ == 0) done_.notify_one();
  }
}

void PartTeam::carry_out(Player& player) noexcept {
  try {
    (*work_)(player);
  } catch (...) {
    const std::scoped_lock lock(mutex_);
    if (!failure_) failure_ = std::current_exception();
  }
}

void PartTeam::play(const TeamStep& step, const Ready& ready) {
  played_.clear();
  for (const Batch& batch : step.batches.batches) {
    if (batch.samples > 0) played_.push_back(&batch);
  }
  Stream& stream = players_.front()->stream;
  const std::int64_t elements = total_->gradients().elements();
  total_->begin(stream);
  for (const auto& player : players_) backend_.copy(player->stream, kept_sums_of(*player), sums_of(*player));
  if (played_.empty()) {
    total_->clear(stream);
    return ready(elements);
  }
  if (size() > 1) stream.synchronize();  // the others' streams read the weights
  sum_->begin(played_.size());
  WorkClock clock;
  const Ready ready_aside = [&](std::int64_t known) { clock.aside([&] { ready(known); }); };
  each([&](Player& player) {
    try {
      play_share(player, step, ready_aside);
      if (player.number > 0) return;
      std::int64_t known = sum_->complete();
      for (ready_aside(known); known < elements; ready_aside(known)) known = sum_->await_more_than(known);
    } catch (...) {
      sum_->abandon(std::current_exception());
      throw;
    }
  });
  seconds_ = clock.seconds();
}

// Part 0 is written where the sum is made; every other part waits with its backward pass until the player's last one
// has been added. What is added of a part but the last concerns nobody until it is whole.
void PartTeam::play_share(Player& player, const TeamStep& step, const Ready& ready) {
  std::optional<PartGradients> unfinished;
  for (std::size_t i = player.number; i < played_.size(); i += size()) {
    const Batch& batch = *played_[i];
    const auto global_samples = static_cast<double>(step.batches.global_samples);
    const PartGradients part{i, gradients_for(player, i)};
    WorkClock clock;
    if (player.number == 0) rank_status_.enter(Phase::forward);
    player.context.train(
        player.stream,
        {.images = batch.images,
         .labels = batch.labels,
         .gradient_scale = 1.0f / static_cast<float>(step.batches.global_samples),
         .sums = sums_of(player),
         .gradients = part.gradients,
         .sample_share = static_cast<float>(static_cast<double>(batch.samples) / global_samples),
         .place = {.seed = step.seed,
                   .step = static_cast<std::uint32_t>(step.step),
                   .first_position = static_cast<std::uint32_t>(batch.first_position)}},
        {.stops = i + 1 == played_.size() ? std::span<const std::int64_t>(stops_) : std::span<const std::int64_t>{},
         .before_backward =
             [&] {
               if (player.number == 0) rank_status_.enter(Phase::backward);
               if (unfinished) clock.aside([&] { sum_->finish(player.stream, *unfinished); });
             },
         .after_layer =
             [&](std::int64_t final) {
               sum_->add(player.stream, part, final);
               if (player.number == 0) clock.aside([&] { ready(sum_->complete()); });
             }});
    if (after_part_) {
      player.stream.synchronize();
      after_part_(clock.seconds());
    }
    unfinished = part;
  }
  if (step.measured) player.stream.synchronize();
  if (unfinished) sum_->finish(player.stream, *unfinished);
}

void PartTeam::take(const Tensor& gradients, const Ready& ready) {
  Stream& stream = players_.front()->stream;
  const Tensor block = total_->gradients();
  total_->begin(stream);
  if (total_->starts_in_place()) backend_.copy(stream, block, gradients);
  total_->add(stream, {0, total_->starts_in_place() ? block : gradients}, {0, block.elements()});
  ready(block.elements());
}

void PartTeam::take_back() {
  for (const auto& player : players_) backend_.copy(player->stream, sums_of(*player), kept_sums_of(*player));
}

std::vector<Tensor> PartTeam::bad_losses() const {
  std::vector<Tensor> counts;
  for (const auto& player : players_) {
    counts.push_back(elements_of(sums_of(*player), {LossSums::kNotFinite, LossSums::kNotFinite + 1}));
  }
  return counts;
}

bool PartTeam::plays_in_total(const Player& player, std::size_t part) const {
  return part == 0 || (player.number == 0 && !total_->starts_in_place());
}

Tensor PartTeam::gradients_for(const Player& player, std::size_t part) const {
  const Tensor block = total_->gradients();
  return plays_in_total(player, part) ? block : player.gradients.view(block.shape, ElementType::f32);
}

LossSums PartTeam::sums() {
  LossSums all;
  for (const auto& player : players_) all = all + read_sums(backend_, player->stream, sums_of(*player));
  return all;
}

void PartTeam::set_sums(const LossSums& sums) {
  for (const auto& player : players_) {
    write_sums(backend_, player->stream, sums_of(*player), player->number == 0 ? sums : LossSums{});
  }
}

std::size_t PartTeam::memory_bytes() const {
  std::size_t bytes = 0;
  for (const auto& player : players_) bytes += player->context.activation_bytes() + player->gradients.bytes();
  return bytes;
}

}  // namespace tutti
