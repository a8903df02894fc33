#pragma once
// Accuracy and loss over a whole data set. Samples are read in chunks, assigned to ranks and their workers in turn.
// Their size depends on the number of samples alone, so that the result does not depend on batch size, parts or ranks.

#include "tutti/data/batch_loader.hpp"
#include "tutti/train/evaluation.hpp"

#include "part_workers.hpp"
#include "rank_context.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <vector>

namespace tutti {

struct EvaluatedData {
  const Dataset& data;
  const ImageRecipe& recipe;
  int classes = 0;
  Views views = Views::none;
};

class Evaluator {
 public:
  // The samples of a chunk; the last one may have fewer. A small set has enough chunks for several ranks.
  static constexpr std::int64_t chunk_samples(std::int64_t samples) {
    return std::min(std::clamp<std::int64_t>((samples + 15) / 16, 8, 256), std::max<std::int64_t>(samples, 1));
  }

  // All borrowed but the recipe. Plans the evaluation's shapes on at most `max_workers` of the workers.
  Evaluator(const EvaluatedData& evaluated, const RankContext& context, PartWorkers& workers, int max_workers);
  std::int64_t samples() const { return samples_; }
  // Collective.
  LossSums run();
  // The same, and passes the scores of all samples to the outlet. Collective.
  LossSums run(const ScoreOutlet& outlet);

 private:
  struct PerWorker {
    std::unique_ptr<ChunkReader> reader;
    OwnedTensor sums;
    // Of all views. Empty if there is only one.
    OwnedTensor mean_logits;
    OwnedTensor view_logits;
    std::map<std::int64_t, std::unique_ptr<LossLayer>> losses{};  // of the mean, by samples
  };
  struct WeightedView {
    ChunkView view;
    double weight;
  };
  static std::vector<WeightedView> views_of(Views views);
  struct Scores;

  void each_worker(const std::function<void(Worker&)>& work);
  void begin();
  // The chunk that the worker evaluates in this iteration, from 0: in every iteration each worker of each rank has one.
  std::int64_t chunk_of(const Worker& worker, std::int64_t iteration) const;
  std::int64_t samples_of(std::int64_t chunk) const { return std::min(chunk_, samples_ - chunk * chunk_); }
  Batch evaluate(Worker& worker, std::int64_t chunk);
  // The scores of the batch that the worker has just evaluated.
  void score(Worker& worker, const Batch& batch, Scores& to);
  // Copies the logits of a chunk that the worker has evaluated.
  void copy_logits(Worker& worker, const Tensor& to) const;
  LossSums total();

  const RankContext& context_;
  PartWorkers& workers_;
  std::int64_t samples_;
  std::int64_t chunk_;  // samples
  std::int64_t chunks_;
  std::size_t classes_;
  std::vector<WeightedView> views_;
  std::vector<PerWorker> per_worker_;
};

}  // namespace tutti
