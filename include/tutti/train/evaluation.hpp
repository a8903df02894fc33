#pragma once
// Evaluates a checkpoint's weights on a data set: accuracy and loss, and on request the scores of every sample.

#include "tutti/backend/backend.hpp"
#include "tutti/base/enum_names.hpp"
#include "tutti/comm/communicator.hpp"
#include "tutti/comm/world.hpp"
#include "tutti/data/dataset.hpp"
#include "tutti/data/image_recipe.hpp"
#include "tutti/nn/network.hpp"
#include "tutti/storage/train_state.hpp"
#include "tutti/watch/rank_status.hpp"

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string_view>

namespace tutti {

// The views of an image, whose logits are averaged. flip: the image and its mirror image. shifts: with weights of 1/4
// these two, with weights of 1/8 these two moved by a pixel in either diagonal direction and reflected at the edges.
enum class Views { none, flip, shifts };
constexpr std::array<std::string_view, 3> enum_names(Views) { return {"none", "flip", "shifts"}; }

// The network's result for one sample, computed on the host in double precision from its logits.
struct SampleResult {
  double exponentials = 0;     // the sum of exp(logit - largest logit); not finite if a logit is NaN or infinite
  std::int32_t label = 0;      // in the data set
  std::int32_t predicted = 0;  // the class of the largest logit; the first, if several are equal
};

// The scores of consecutive samples. Borrowed.
struct ChunkScores {
  std::int64_t first = 0;  // number of its first sample
  std::size_t classes = 0;
  std::span<const SampleResult> samples;
  std::span<const float> logits;  // samples x classes

  std::span<const float> logits_of(std::size_t i) const { return logits.subspan(i * classes, classes); }
  // The softmax probability of a class.
  double probability(std::size_t i, std::size_t of_class) const;
};

// Receives the scores of a data set chunk by chunk. Only rank 0 calls `receive`; all ranks throw what it throws. Every
// rank holds only a few chunks at a time.
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
  const ImageRecipe& recipe;  // only its image size and normalization are used
  Views views = Views::none;
  int threads = 1;      // of each worker
  int max_workers = 1;  // workers of this rank; does not change the result
  RankStatus* rank_status = nullptr;
  const ScoreOutlet* scores = nullptr;  // receives scores, if not null: the same bits at any number of ranks
};

// Counts every sample once at any number of ranks. Throws a checkpoint error that names the first tensor that does not
// fit. Collective.
LossSums evaluate(const EvaluationRequest& request, const TrainState& state);

}  // namespace tutti
