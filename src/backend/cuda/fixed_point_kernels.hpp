#pragma once
// The kernels of fixed_point.cpp. Pointers are to a GPU's memory.

#include <cuda_runtime_api.h>

#include <cstdint>

namespace tutti::cuda {

// Where a request's elements lie in the grid's block.
struct SlicedExtent {
  const std::int64_t* ends;
  const std::int32_t* exponents;
  std::int64_t slices;
  std::int64_t place;
  std::int64_t elements;
  bool aligned;  // pairs of values and of sums, to their size
};

struct Rounding {
  const float* values;
  std::int64_t* sums;
  bool first;
  std::int32_t* largest;
};

struct Unrounding {
  const std::int64_t* sums;
  float* values;
};

// All asynchronous.
void launch_rounding(cudaStream_t stream, const Rounding& work, const SlicedExtent& extent);
void launch_unrounding(cudaStream_t stream, const Unrounding& work, const SlicedExtent& extent);

}  // namespace tutti::cuda
