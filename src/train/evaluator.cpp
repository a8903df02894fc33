#include "evaluator.hpp"

#include <algorithm>

namespace tutti {

Evaluator::Evaluator(const Dataset& data, const ImageRecipe& recipe, Backend& backend, Communicator& communicator,
                     PartContext& part)
    : backend_(backend),
      communicator_(communicator),
      part_(part),
      samples_(data.info().samples),
      reader_(data, backend, recipe, std::min(kChunk, samples_)),
      sums_(backend.allocate(LossSums::kFigures * sizeof(std::int64_t))),
      sum_over_ranks_(backend, communicator) {
  if (samples_ >= kChunk) part_.plan(kChunk, LayerMode::evaluation);
  if (samples_ % kChunk != 0) part_.plan(samples_ % kChunk, LayerMode::evaluation);
}

LossSums Evaluator::run(Stream& stream) {
  const Tensor sums = sums_.view(Shape{LossSums::kFigures}, ElementType::i64);
  backend_.fill_zero(stream, sums);
  for (std::int64_t first = communicator_.rank() * kChunk; first < samples_; first += communicator_.size() * kChunk) {
    const Batch batch = reader_.read(first, std::min(kChunk, samples_ - first));
    part_.forward(stream, batch.images, LayerMode::evaluation);
    part_.loss(stream, batch.labels, 0, sums);
  }
  return sum_over_ranks_(stream, sums);
}

}  // namespace tutti
