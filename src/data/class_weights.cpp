#include "tutti/base/error.hpp"
#include "tutti/base/text.hpp"
#include "tutti/data/dataset.hpp"

#include "sources.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <vector>

namespace tutti {

std::vector<double> class_weights(const std::string& text, const Dataset& data) {
  if (text == "none") return {};
  const auto labels = data.labels();
  if (labels.empty()) {
    throw Error(ErrorSource::usage, fmt::format("--class-weights {}: the data set {} does not know its labels without "
                                                "reading its images: leave the option out",
                                                text, data.info().name));
  }
  const std::vector<std::int64_t> samples = count_classes(data.info(), labels);
  std::vector<double> weights;
  if (text == "auto") {
    std::ranges::transform(samples, std::back_inserter(weights),
                           [](std::int64_t n) { return n > 0 ? 1.0 / static_cast<double>(n) : 0; });
  } else {
    weights = parse_numbers<double>(text);
    if (!std::ranges::all_of(weights, [](double w) { return w >= 0 && std::isfinite(w); })) weights.clear();
  }
  double sum = 0;
  for (std::size_t i = 0; i < weights.size() && weights.size() == samples.size(); ++i) {
    sum += static_cast<double>(samples[i]) * weights[i];
  }
  if (!(sum > 0) || !std::isfinite(sum)) {
    throw Error(ErrorSource::usage, fmt::format("--class-weights {}: give none, auto, or {} weights of 0 or more, one "
                                                "for each class of {}, separated by commas",
                                                text, samples.size(), data.info().name));
  }
  for (double& weight : weights) weight *= static_cast<double>(labels.size()) / sum;
  return weights;
}

}  // namespace tutti
