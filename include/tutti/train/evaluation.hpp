#pragma once
// How good a trained network is: accuracy and loss of a checkpoint's weights over one data set, without a training
// run around it; and what it says of single samples.

#include "tutti/backend/backend.hpp"
#include "tutti/checkpoint/train_state.hpp"
#include "tutti/comm/communicator.hpp"
#include "tutti/comm/world.hpp"
#include "tutti/data/dataset.hpp"
#include "tutti/data/image_recipe.hpp"
#include "tutti/nn/network.hpp"
#include "tutti/watch/rank_status.hpp"

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>

namespace tutti {

// How probable the network takes each class to be: on the host, in double precision from the network's outputs, and in
// the order of the samples.
struct SampleScore {
  double exponentials = 0;     // the sum of exp(logit - greatest logit); not finite where a logit is NaN or infinite
  std::int32_t label = 0;      // as the data set has it
  std::int32_t predicted = 0;  // the class of the greatest logit, the first of equals
};

// Of consecutive samples. Borrowed.
struct ChunkScores {
  std::int64_t first = 0;  // number of its first sample
  std::size_t classes = 0;
  std::span<const SampleScore> samples;
  std::span<const float> logits;  // samples x classes

  std::span<const float> logits_of(std::size_t i) const { return logits.subspan(i * classes, classes); }
  // The probability of a class; those of a sample add up to 1.
  double probability(std::size_t i, std::size_t of_class) const;
};

// Receives the scores of a data set: chunk by chunk on rank 0, which alone calls `receive`. Every rank holds a few
// chunks at a time. What `receive` throws, all ranks throw.
struct ScoreOutlet {
  World& world;
  std::function<void(const ChunkScores&)> receive;
};

// All borrowed; the pointers may be null.
struct EvaluationRequest {
  Backend& backend;
  Communicator& communicator;
  const Network& network;
  const Dataset& data;
  const ImageRecipe& recipe;  // its image size and normalisation count
  int threads = 1;            // of each worker
  int side_by_side = 1;       // workers of this rank; they never change the result
  RankStatus* rank_status = nullptr;
  const ScoreOutlet* scores = nullptr;  // also wanted; they, too, are the same bits on any number of ranks
};

// Every sample counts once, on any number of ranks. Throws a checkpoint error that names the first tensor that does
// not fit. Collective.
LossSums evaluate(const EvaluationRequest& request, const TrainState& state);

}  // namespace tutti
