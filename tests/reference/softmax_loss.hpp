#pragma once
// Softmax cross-entropy by its definition, in long double and relative to the greatest logit.

#include "reference/array.hpp"

#include <algorithm>
#include <cmath>

namespace tutti::reference {

struct LossResult {
  double loss = 0;           // summed over the samples
  std::int64_t correct = 0;  // samples whose first greatest logit is the label's
  std::vector<double> gradient;
};

inline LossResult softmax_loss(const Array& logits, std::span<const std::int32_t> labels, double gradient_scale,
                               double smoothing = 0) {
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
    for (std::int64_t c = 0; c < classes; ++c) {
      const long double probability = std::exp(static_cast<long double>(first[c] - *greatest)) / sum;
      const long double target = (c == label ? 1 - smoothing : 0) + smoothing / static_cast<double>(classes);
      if (target > 0) loss += target * (std::log(sum) + *greatest - first[c]);
      result.gradient.push_back(static_cast<double>((probability - target) * gradient_scale));
    }
  }
  result.loss = static_cast<double>(loss);
  return result;
}

}  // namespace tutti::reference
