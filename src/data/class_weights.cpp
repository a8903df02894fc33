#include "tutti/base/error.hpp"
#include "tutti/data/dataset.hpp"

#include "sources.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <system_error>

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
    const char* const end = text.data() + text.size();
    for (const char* at = text.data(); at <= end;) {
      const auto [rest, status] = std::from_chars(at, end, weights.emplace_back());
      const bool ends = rest == end || *rest == ',';
      const bool is_weight = status == std::errc{} && ends && weights.back() >= 0 && std::isfinite(weights.back());
      if (!is_weight) weights.clear();
      at = is_weight ? rest + 1 : end + 1;
    }
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
