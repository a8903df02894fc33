#include "evaluator.hpp"

#include <exception>
#include <span>

namespace tutti {

Evaluator::Evaluator(const EvaluatedData& evaluated, Backend& backend, Communicator& communicator, PartTeam& team)
    : backend_(backend),
      communicator_(communicator),
      team_(team),
      samples_(evaluated.data.info().samples),
      chunks_((samples_ + kChunk - 1) / kChunk),
      sum_over_ranks_(backend, communicator, team.rank_status()) {
  const std::int64_t most_of_a_rank = (chunks_ + communicator.size() - 1) / communicator.size();
  const auto desks = std::min(static_cast<std::int64_t>(team.size()), most_of_a_rank);
  for (std::int64_t i = 0; i < desks; ++i) {
    desks_.push_back(
        {std::make_unique<ChunkReader>(evaluated.data, backend, evaluated.recipe, std::min(kChunk, samples_)),
         backend.allocate(LossSums::kFigures * sizeof(std::int64_t))});
  }
  each_player([&](Player& player) {
    if (samples_ >= kChunk) player.context.plan(kChunk, LayerMode::evaluation);
    if (samples_ % kChunk != 0) player.context.plan(samples_ % kChunk, LayerMode::evaluation);
  });
}

LossSums Evaluator::run(Stream& stream) {
  begin(stream);
  each_player([&](Player& player) {
    for (std::int64_t chunk = chunk_of(player, 0), turn = 0; chunk < chunks_; chunk = chunk_of(player, ++turn)) {
      play(player, chunk);
    }
    player.stream.synchronize();
  });
  return total(stream);
}

// Chunks leave in rounds of one from every rank. A rank plays as many rounds ahead as it has players; others may have
// more or fewer.
LossSums Evaluator::run(Stream& stream, const ScoreOutlet& outlet, int classes) {
  World& world = outlet.world;
  const std::int64_t ranks = communicator_.size();
  const auto players = std::ssize(desks_);
  std::vector<ChunkScorer> scorers;
  for (std::int64_t i = 0; i < players; ++i) scorers.emplace_back(backend_, classes, std::min(kChunk, samples_));
  HeldScores received{.classes = static_cast<std::size_t>(classes)};
  std::exception_ptr refusal;
  const auto rethrow_refusal = [&refusal] {
    if (refusal) std::rethrow_exception(refusal);
  };
  begin(stream);
  for (std::int64_t round = 0; round * ranks < chunks_; ++round) {
    run_agreed(world, [&] {
      rethrow_refusal();
      if (round % players == 0) play_ahead(scorers, round / players);
    });
    const std::int64_t end = std::min(chunks_, (round + 1) * ranks);
    for (std::int64_t chunk = round * ranks; chunk < end; ++chunk) {
      const auto root = static_cast<int>(chunk % ranks);
      const auto desk = static_cast<std::size_t>(round % players);
      HeldScores& scores = root == world.rank() ? scorers[desk].held() : received;
      scores.resize(samples_of(chunk));
      world.broadcast(std::as_writable_bytes(std::span(scores.samples)), root);
      world.broadcast(std::as_writable_bytes(std::span(scores.logits)), root);
      if (world.rank() != 0 || refusal) continue;
      try {
        outlet.receive(scores.from(chunk * kChunk));
      } catch (...) {
        refusal = std::current_exception();  // told at the next vote: the others are at their broadcasts
      }
    }
  }
  run_agreed(world, rethrow_refusal);
  return total(stream);
}

void Evaluator::play_ahead(std::vector<ChunkScorer>& scorers, std::int64_t turn) {
  each_player([&](Player& player) {
    const std::int64_t chunk = chunk_of(player, turn);
    if (chunk < chunks_) scorers[player.number].take(player, play(player, chunk));
  });
}

void Evaluator::each_player(const std::function<void(Player&)>& work) {
  team_.each([&](Player& player) {
    if (player.number < desks_.size()) work(player);
  });
}

void Evaluator::begin(Stream& stream) {
  if (team_.size() > 1) stream.synchronize();  // the others' streams read the weights
  each_player([&](Player& player) { backend_.fill_zero(player.stream, sums_of(player)); });
}

std::int64_t Evaluator::chunk_of(const Player& player, std::int64_t turn) const {
  const std::int64_t round = turn * std::ssize(desks_) + static_cast<std::int64_t>(player.number);
  return round * communicator_.size() + communicator_.rank();
}

Batch Evaluator::play(Player& player, std::int64_t chunk) {
  const Batch batch = desks_[player.number].reader->read(player.stream, chunk * kChunk, samples_of(chunk));
  player.context.forward(player.stream, batch.images, LayerMode::evaluation);
  player.context.loss(player.stream, batch.labels, 0, sums_of(player));
  return batch;
}

LossSums Evaluator::total(Stream& stream) {
  LossSums mine;
  for (const Desk& desk : desks_) {
    mine = mine + read_sums(backend_, stream, desk.sums.view(Shape{LossSums::kFigures}, ElementType::i64));
  }
  return sum_over_ranks_(stream, mine);
}

Tensor Evaluator::sums_of(const Player& player) const {
  return desks_[player.number].sums.view(Shape{LossSums::kFigures}, ElementType::i64);
}

}  // namespace tutti
