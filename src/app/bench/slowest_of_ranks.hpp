#pragma once
// How much longer than usual the slowest of some ranks takes, from a sample of what one rank takes.

#include <vector>

namespace tutti {

class SlowestOfRanks {
 public:
  // Ratios to the median, not empty.
  explicit SlowestOfRanks(std::vector<double> sample);

  // Of the greatest of so many draws. Beyond what the sample has seen, its tail goes on as an exponential one.
  double expected(int draws) const;
  double quantile(int draws, double fraction) const;

 private:
  std::vector<double> sample_;  // ascending
  double tail_ = 0;             // mean excess over the median
};

}  // namespace tutti
