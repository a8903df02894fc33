#pragma once
// A data set on its way from a source into a block: what is known of it, its labels, and either its pixels or where
// they can be read.

#include "tutti/data/dataset.hpp"

#include <cstdint>
#include <variant>
#include <vector>

namespace tutti {

struct LoadedSet {
  DatasetInfo info;  // classes 0: as many as the labels show; samples and class_samples are counted at the end
  std::vector<std::int32_t> labels;
  std::variant<std::vector<std::uint8_t>> pixels;
};

// Takes a share of the samples out of `set`, chosen by the seed, and returns them as a set of their own; both keep
// their order. Throws a usage error when one of the two would be empty.
LoadedSet hold_out(LoadedSet& set, double ratio, std::uint64_t seed);

}  // namespace tutti
