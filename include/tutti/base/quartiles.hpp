#pragma once
// What is told of a sample of times: median and quartiles. Between two values the nearer one counts by its distance.

#include <vector>

namespace tutti {

struct Quartiles {
  double low = 0;
  double median = 0;
  double high = 0;
};

// Of at least one value.
Quartiles quartiles_of(std::vector<double> values);

}  // namespace tutti
