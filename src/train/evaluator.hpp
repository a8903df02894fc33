#pragma once
// Accuracy and loss over a whole data set, every sample counted exactly once at any number of ranks. The set is read
// in fixed chunks of 256, so that the result does not depend on batch size, parts or ranks; the chunks of a rank are
// dealt to the players of its team.

#include "tutti/data/batch_loader.hpp"

#include "part_team.hpp"
#include "sum_over_ranks.hpp"

#include <cstdint>
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

 private:
  // What a player of the team needs here.
  struct Desk {
    std::unique_ptr<ChunkReader> reader;
    Buffer sums;
  };

  void play(Player& player);

  Backend& backend_;
  Communicator& communicator_;
  PartTeam& team_;
  std::int64_t samples_;
  std::vector<Desk> desks_;
  SumOverRanks sum_over_ranks_;
};

}  // namespace tutti
