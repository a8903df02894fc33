#pragma once
// How good a trained network is: accuracy and loss of a checkpoint's weights over one data set, without a training
// run around it.

#include "tutti/backend/backend.hpp"
#include "tutti/checkpoint/train_state.hpp"
#include "tutti/comm/communicator.hpp"
#include "tutti/data/dataset.hpp"
#include "tutti/data/image_recipe.hpp"
#include "tutti/nn/network.hpp"
#include "tutti/train/sample_scores.hpp"
#include "tutti/watch/rank_status.hpp"

namespace tutti {

// All borrowed; the pointers may be null.
struct EvaluationRequest {
  Backend& backend;
  Communicator& communicator;
  const Network& network;
  const Dataset& data;
  const ImageRecipe& recipe;  // its image size and normalisation count
  int threads = 1;            // of each player
  int side_by_side = 1;       // players of this rank; they never change the result
  RankStatus* rank_status = nullptr;
  const ScoreOutlet* scores = nullptr;  // besides; they, too, are the same bits on any number of ranks
};

// Every sample counts once, on any number of ranks. Throws a checkpoint error that names the first tensor that does
// not fit. Collective.
LossSums evaluate(const EvaluationRequest& request, const TrainState& state);

}  // namespace tutti
