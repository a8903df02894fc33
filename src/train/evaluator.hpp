#pragma once
// Accuracy and loss over a whole data set. Samples are read in fixed chunks of 256, assigned to ranks and their workers
// in turn, so that the result does not depend on batch size, parts or ranks.

#include "tutti/data/batch_loader.hpp"
#include "tutti/train/evaluation.hpp"

#include "part_workers.hpp"
#include "rank_context.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

namespace tutti {

class Evaluator {
 public:
  static constexpr std::int64_t kChunk = 256;

  // All borrowed but the recipe. Plans the evaluation's shapes on at most `max_workers` of the workers.
  Evaluator(const Dataset& data, const ImageRecipe& recipe, const RankContext& context, PartWorkers& workers,
            int max_workers);
  // Collective.
  LossSums run();
  // The same, and passes the scores of all samples to the outlet. Collective.
  LossSums run(const ScoreOutlet& outlet, std::size_t classes);

 private:
  struct PerWorker {
    std::unique_ptr<ChunkReader> reader;
    OwnedTensor sums;
  };
  struct Scores;

  void each_worker(const std::function<void(Worker&)>& work);
  void begin();
  // The chunk that the worker evaluates in this iteration, from 0: in every iteration each worker of each rank has one.
  std::int64_t chunk_of(const Worker& worker, std::int64_t iteration) const;
  std::int64_t samples_of(std::int64_t chunk) const { return std::min(kChunk, samples_ - chunk * kChunk); }
  Batch evaluate(Worker& worker, std::int64_t chunk);
  // The scores of the batch that the worker has just evaluated.
  void score(Worker& worker, const Batch& batch, std::size_t classes, Scores& to);
  LossSums total();

  const RankContext& context_;
  PartWorkers& workers_;
  std::int64_t samples_;
  std::int64_t chunks_;
  std::vector<PerWorker> per_worker_;
};

}  // namespace tutti
