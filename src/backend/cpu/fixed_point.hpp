#pragma once
// Sums by way of integers on flat host memory.

#include "tutti/backend/fixed_point.hpp"

namespace tutti::cpu {

void to_fixed_point(const FixedPointGrid& grid, const ToFixedPoint& request);
void from_fixed_point(const FixedPointGrid& grid, const FromFixedPoint& request);

}  // namespace tutti::cpu
