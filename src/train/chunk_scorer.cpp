#include "chunk_scorer.hpp"

#include <algorithm>
#include <cmath>
#include <span>

namespace tutti {
namespace {

// Relative to the greatest, so that nothing overflows. What is no number makes the sum none.
SampleScore score_of(std::span<const float> logits, std::int32_t label) {
  const auto greatest = std::ranges::max_element(logits);
  SampleScore score{.label = label, .predicted = static_cast<std::int32_t>(greatest - logits.begin())};
  for (const float logit : logits) score.exponentials += std::exp(static_cast<double>(logit) - *greatest);
  return score;
}

}  // namespace

void HeldScores::resize(std::int64_t count) {
  samples.resize(static_cast<std::size_t>(count));
  logits.resize(samples.size() * classes);
}

ChunkScorer::ChunkScorer(Backend& backend, int classes, std::int64_t most_samples)
    : backend_(backend),
      plain_(backend.allocate(static_cast<std::size_t>(most_samples * classes) * bytes_of(ElementType::f32))),
      held_{.classes = static_cast<std::size_t>(classes)} {}

void ChunkScorer::take(Player& player, const Batch& batch) {
  const Shape shape{batch.samples, static_cast<std::int64_t>(held_.classes)};
  const Tensor plain = plain_.view(shape, ElementType::f32);
  held_.resize(batch.samples);
  labels_.resize(held_.samples.size());
  player.context.copy_logits(player.stream, plain);
  backend_.copy(player.stream, {held_.logits.data(), shape, ElementType::f32, MemorySpace::host}, plain);
  backend_.copy(player.stream, {labels_.data(), batch.labels.shape, ElementType::i32, MemorySpace::host}, batch.labels);
  player.stream.synchronize();
  const std::span<const float> logits(held_.logits);
  for (std::size_t i = 0; i < labels_.size(); ++i) {
    held_.samples[i] = score_of(logits.subspan(i * held_.classes, held_.classes), labels_[i]);
  }
}

}  // namespace tutti
