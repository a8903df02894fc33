#include "slowest_of_ranks.hpp"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <utility>

namespace tutti {

SlowestOfRanks::SlowestOfRanks(std::vector<double> sample) : sample_(std::move(sample)) {
  std::ranges::sort(sample_);
  const std::size_t first = (sample_.size() - 1) / 2;
  for (std::size_t i = first; i < sample_.size(); ++i) tail_ += sample_[i] - sample_[first];
  tail_ /= static_cast<double>(sample_.size() - first);
}

double SlowestOfRanks::expected(int draws) const {
  const auto size = static_cast<double>(sample_.size());
  const double seen = std::min<double>(draws, size);
  double sum = 0;
  for (std::size_t i = 0; i < sample_.size(); ++i) {
    const auto place = static_cast<double>(i);
    sum += sample_[i] * (std::pow((place + 1) / size, seen) - std::pow(place / size, seen));
  }
  return sum + tail_ * std::log(draws / seen);
}

double SlowestOfRanks::quantile(int draws, double fraction) const {
  const auto size = static_cast<double>(sample_.size());
  const double above = -std::expm1(std::log(fraction) / draws);  // of a draw, the chance to be greater
  const double place = (1 - above) * size;
  if (place <= size - 1) return sample_[static_cast<std::size_t>(place)];
  return sample_.back() + tail_ * std::max(0.0, -std::log(above * size));
}

}  // namespace tutti
