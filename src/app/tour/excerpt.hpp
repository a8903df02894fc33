#pragma once
// The handful of parameters that the stations follow: the network's first filter, or of its first unit the weights that
// see the middle of the image. All others fare alike.

#include "tutti/backend/backend.hpp"
#include "tutti/nn/network.hpp"

#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace tutti {

struct Excerpt {
  ParameterSlice slice;
  std::int64_t columns = 0;
  std::vector<std::int64_t> elements{};  // of the slice, row by row
  std::string words;                     // "conv1/weight, filter 0"

  std::int64_t rows() const { return std::ssize(elements) / columns; }
};

// Throws an input error for a network without weights.
Excerpt choose_excerpt(const Network& network);
// Its values in a block of the network's layout. Waits.
std::vector<double> read_excerpt(Backend& backend, const Tensor& block, const Excerpt& excerpt);

// How values of all ranks are printed so that they can be compared by eye.
struct ValueScale {
  double factor = 1;
  int decimals = 4;
  std::string words{};  // ", times 1000", or nothing

  std::string text(double value) const;  // of at most kWidth columns
  static constexpr int kWidth = 7;
};
ValueScale scale_for(std::span<const std::vector<double>> values);
// Row by row.
std::vector<std::string> excerpt_text(const Excerpt& excerpt, const std::vector<double>& values,
                                      const ValueScale& scale);

}  // namespace tutti
