#pragma once
// How many samples each class has, which also tells whether all labels are good.

#include "tutti/data/dataset.hpp"

#include <cstdint>
#include <span>
#include <vector>

namespace tutti {

// Throws an input error naming the set and the first sample whose label is none of its classes.
std::vector<std::int64_t> count_classes(const DatasetInfo& info, std::span<const std::int32_t> labels);

}  // namespace tutti
