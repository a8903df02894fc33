#pragma once
// Comparison of a backend's floats with a reference in double.

#include "reference/array.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <span>
#include <string>
#include <vector>

namespace tutti::testing_support {

// Rounding errors grow with the greatest of the summed products rather than with the sum, so the tolerance is
// relative to the greatest value expected.
inline ::testing::AssertionResult close(const std::vector<float>& got, std::span<const double> expected,
                                        double tolerance) {
  if (got.size() != expected.size()) {
    return ::testing::AssertionFailure() << got.size() << " values instead of " << expected.size();
  }
  double greatest = 1e-30;
  for (const double value : expected) greatest = std::max(greatest, std::abs(value));
  std::size_t wrong = 0;
  std::string first;
  for (std::size_t i = 0; i < got.size(); ++i) {
    if (std::abs(got[i] - expected[i]) <= tolerance * greatest) continue;
    if (wrong++ < 3)
      first += " [" + std::to_string(i) + "] " + std::to_string(got[i]) + " not " + std::to_string(expected[i]);
  }
  if (wrong == 0) return ::testing::AssertionSuccess();
  return ::testing::AssertionFailure() << wrong << " of " << got.size() << " values differ:" << first;
}

// The same for values whose errors have many sources: the norm of the difference, relative to that expected.
inline ::testing::AssertionResult close_in_norm(const std::vector<float>& got, std::span<const double> expected,
                                                double tolerance) {
  if (got.size() != expected.size()) {
    return ::testing::AssertionFailure() << got.size() << " values instead of " << expected.size();
  }
  double difference = 0;
  double norm = 1e-20;
  for (std::size_t i = 0; i < got.size(); ++i) {
    difference += (got[i] - expected[i]) * (got[i] - expected[i]);
    norm += expected[i] * expected[i];
  }
  if (std::sqrt(difference / norm) <= tolerance) return ::testing::AssertionSuccess();
  return ::testing::AssertionFailure() << "differs by " << std::sqrt(difference / norm) << " of its norm";
}

}  // namespace tutti::testing_support
