#pragma once
// Accuracy and loss over a whole data set, every sample counted exactly once at any number of ranks. The set is read
// in fixed chunks of 256, so that the result does not depend on batch size, parts or ranks; the chunks of a rank are
// dealt to the players of its team.

#include "tutti/data/batch_loader.hpp"
#include "tutti/train/sample_scores.hpp"

#include "chunk_scorer.hpp"
#include "part_team.hpp"
#include "sum_over_ranks.hpp"

#include <algorithm>
#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

namespace tutti {

struct EvaluatedData {
  const Dataset& data;
  const ImageRecipe& recipe;
};

class Evaluator {
 public:
  static constexpr std::int64_t kChunk = 256;

  // All borrowed but the recipe. Plans the evaluation's shapes on the team.
  Evaluator(const EvaluatedData& evaluated, Backend& backend, Communicator& communicator, PartTeam& team);
  // Collective.
  LossSums run(Stream& stream);
  // Likewise, and the scores of all samples go to the outlet. Collective.
  LossSums run(Stream& stream, const ScoreOutlet& outlet, int classes);

 private:
  // What a player of the team needs here.
  struct Desk {
    std::unique_ptr<ChunkReader> reader;
    Buffer sums;
  };

  void each_player(const std::function<void(Player&)>& work);
  void begin(Stream& stream);
  // Chunks go round the ranks first, then round the rank's players: the one that is the player's turn, counted from 0.
  std::int64_t chunk_of(const Player& player, std::int64_t turn) const;
  std::int64_t samples_of(std::int64_t chunk) const { return std::min(kChunk, samples_ - chunk * kChunk); }
  Batch play(Player& player, std::int64_t chunk);
  void play_ahead(std::vector<ChunkScorer>& scorers, std::int64_t turn);
  LossSums total(Stream& stream);
  Tensor sums_of(const Player& player) const;

  Backend& backend_;
  Communicator& communicator_;
  PartTeam& team_;
  std::int64_t samples_;
  std::int64_t chunks_;
  std::vector<Desk> desks_;
  SumOverRanks sum_over_ranks_;
};

}  // namespace tutti
