#include "evaluator.hpp"

#include <algorithm>

namespace tutti {

Evaluator::Evaluator(const EvaluatedData& evaluated, Backend& backend, Communicator& communicator, PartTeam& team)
    : backend_(backend),
      communicator_(communicator),
      team_(team),
      samples_(evaluated.data.info().samples),
      sum_over_ranks_(backend, communicator, team.whereabouts()) {
  const std::int64_t chunks = (samples_ + kChunk - 1) / kChunk;
  const std::int64_t most_of_a_rank = (chunks + communicator.size() - 1) / communicator.size();
  const auto desks = std::min(static_cast<std::int64_t>(team.size()), most_of_a_rank);
  for (std::int64_t i = 0; i < desks; ++i) {
    desks_.push_back(
        {std::make_unique<ChunkReader>(evaluated.data, backend, evaluated.recipe, std::min(kChunk, samples_)),
         backend.allocate(LossSums::kFigures * sizeof(std::int64_t))});
  }
  team_.each([&](Player& player) {
    if (player.number >= desks_.size()) return;
    if (samples_ >= kChunk) player.context.plan(kChunk, LayerMode::evaluation);
    if (samples_ % kChunk != 0) player.context.plan(samples_ % kChunk, LayerMode::evaluation);
  });
}

LossSums Evaluator::run(Stream& stream) {
  if (team_.size() > 1) stream.synchronize();  // the others' streams read the weights
  team_.each([&](Player& player) {
    if (player.number < desks_.size()) play(player);
  });
  LossSums mine;
  for (const Desk& desk : desks_) {
    mine = sum_of(mine, read_sums(backend_, stream, desk.sums.view(Shape{LossSums::kFigures}, ElementType::i64)));
  }
  return sum_over_ranks_(stream, mine);
}

// Chunks go round the ranks first, then round the rank's players.
void Evaluator::play(Player& player) {
  Desk& desk = desks_[player.number];
  const Tensor sums = desk.sums.view(Shape{LossSums::kFigures}, ElementType::i64);
  backend_.fill_zero(player.stream, sums);
  const auto number = static_cast<std::int64_t>(player.number);
  const auto players = static_cast<std::int64_t>(desks_.size());
  const std::int64_t ranks = communicator_.size();
  for (std::int64_t chunk = communicator_.rank() + ranks * number; chunk * kChunk < samples_;
       chunk += ranks * players) {
    const std::int64_t first = chunk * kChunk;
    const Batch batch = desk.reader->read(player.stream, first, std::min(kChunk, samples_ - first));
    player.context.forward(player.stream, batch.images, LayerMode::evaluation);
    player.context.loss(player.stream, batch.labels, 0, sums);
  }
  player.stream.synchronize();
}

}  // namespace tutti
