#pragma once
// Accuracy and loss over a whole data set, every sample counted exactly once at any number of ranks. The set is read
// in fixed chunks of 256, so that the result does not depend on batch size, parts or ranks.

#include "tutti/data/batch_loader.hpp"
#include "tutti/nn/part_context.hpp"

#include "sum_over_ranks.hpp"

#include <cstdint>

namespace tutti {

class Evaluator {
 public:
  static constexpr std::int64_t kChunk = 256;

  // All but the recipe borrowed. Plans the evaluation's shapes on `part`.
  Evaluator(const Dataset& data, const ImageRecipe& recipe, Backend& backend, Communicator& communicator,
            PartContext& part);
  // Collective.
  LossSums run(Stream& stream);

 private:
  Backend& backend_;
  Communicator& communicator_;
  PartContext& part_;
  std::int64_t samples_;
  ChunkReader reader_;
  Buffer sums_;
  SumOverRanks sum_over_ranks_;
};

}  // namespace tutti
