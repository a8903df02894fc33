#include "worst_mistakes.hpp"

#include <algorithm>
#include <tuple>

namespace tutti {
namespace {

bool is_worse(const Mistake& a, const Mistake& b) {
  return std::tuple(-a.probability, a.probability_of_label, a.sample) <
         std::tuple(-b.probability, b.probability_of_label, b.sample);
}

}  // namespace

void WorstMistakes::add(const ChunkScores& scores) {
  for (std::size_t i = 0; i < scores.samples.size(); ++i) {
    const SampleScore& score = scores.samples[i];
    if (score.label == score.predicted) continue;
    const auto label = static_cast<std::size_t>(score.label);
    const auto predicted = static_cast<std::size_t>(score.predicted);
    heap_.push_back({.sample = scores.first + static_cast<std::int64_t>(i),
                     .label = label,
                     .predicted = predicted,
                     .probability = scores.probability(i, predicted),
                     .probability_of_label = scores.probability(i, label)});
    std::ranges::push_heap(heap_, is_worse);
    if (heap_.size() <= most_) continue;
    std::ranges::pop_heap(heap_, is_worse);
    heap_.pop_back();
  }
}

std::vector<Mistake> WorstMistakes::sorted() const {
  std::vector<Mistake> mistakes = heap_;
  std::ranges::sort(mistakes, is_worse);
  return mistakes;
}

}  // namespace tutti
