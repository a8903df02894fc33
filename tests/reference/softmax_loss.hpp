#pragma once
// Softmax cross-entropy by its definition, in long double and relative to the greatest logit.

#include "reference/array.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <span>
#include <vector>

namespace tutti::reference {

struct LossResult {
  double loss = 0;           // summed over the samples
  std::int64_t correct = 0;  // samples whose first greatest logit is the label's
  std::vector<double> gradient;
};

struct LossTargets {
  double smoothing = 0;
  std::vector<std::int32_t> others{};  // the second labels; empty: none
  std::vector<float> shares{};         // of the first
  std::vector<double> weights{};       // of the classes; empty: 1
};

inline LossResult softmax_loss(const Array& logits, std::span<const std::int32_t> labels, double gradient_scale,
                               const LossTargets& targets = {}) {
  LossResult result;
  const std::int64_t classes = logits.shape[1];
  long double loss = 0;
  for (std::int64_t n = 0; n < logits.shape[0]; ++n) {
    const auto first = logits.values.begin() + n * classes;
    const auto greatest = std::max_element(first, first + classes);
    const std::int64_t label = labels[static_cast<std::size_t>(n)];
    long double sum = 0;
    for (auto logit = first; logit != first + classes; ++logit)
      sum += std::exp(static_cast<long double>(*logit - *greatest));
    result.correct += greatest - first == label ? 1 : 0;
    const double share = targets.shares.empty() ? 1 : targets.shares[static_cast<std::size_t>(n)];
    std::vector<long double> target;
    for (std::int64_t c = 0; c < classes; ++c) {
      const bool is_other = share < 1 && c == targets.others[static_cast<std::size_t>(n)];
      const double of_labels = (c == label ? share : 0) + (is_other ? 1 - share : 0);
      const double weight = targets.weights.empty() ? 1 : targets.weights[static_cast<std::size_t>(c)];
      const double smoothed = (1 - targets.smoothing) * of_labels + targets.smoothing / static_cast<double>(classes);
      target.push_back(weight * smoothed);
      if (target.back() > 0) loss += target.back() * (std::log(sum) + *greatest - first[c]);
    }
    const long double whole = std::accumulate(target.begin(), target.end(), 0.0L);
    for (std::int64_t c = 0; c < classes; ++c) {
      const long double probability = std::exp(static_cast<long double>(first[c] - *greatest)) / sum;
      result.gradient.push_back(
          static_cast<double>((probability * whole - target[static_cast<std::size_t>(c)]) * gradient_scale));
    }
  }
  result.loss = static_cast<double>(loss);
  return result;
}

}  // namespace tutti::reference
