#pragma once
// Sums by way of integers on tensors in a GPU's memory; the bits are the CPU's.

#include "tutti/backend/cuda_stream.hpp"
#include "tutti/backend/fixed_point.hpp"

namespace tutti::cuda {

// One kernel each, whatever the number of slices. Asynchronous.
void to_fixed_point(CudaStream& stream, const FixedPointGrid& grid, const ToFixedPoint& request);
void from_fixed_point(CudaStream& stream, const FixedPointGrid& grid, const FromFixedPoint& request);

}  // namespace tutti::cuda
