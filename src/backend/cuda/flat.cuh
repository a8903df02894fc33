#pragma once
// What kernels over flat memory share: neighbouring elements read and written as one, and several tensors in one grid.

#include "backend/cuda/runtime.hpp"
#include "backend/requests.hpp"
#include "kernel.cuh"

namespace tutti::cuda {

inline constexpr int kWarpLanes = 32;
inline constexpr unsigned kWholeWarp = 0xFFFFFFFFu;

template <class T, int kSize>
struct alignas(kSize * sizeof(T)) Run {
  T values[kSize];
};

template <int kSize, class T>
__device__ inline Run<T, kSize> load(const T* from, std::int64_t at) {
  return *reinterpret_cast<const Run<T, kSize>*>(from + at);
}

template <int kSize, class T>
__device__ inline void store(T* to, std::int64_t at, const Run<T, kSize>& run) {
  *reinterpret_cast<Run<T, kSize>*>(to + at) = run;
}

// Which of a table's `count` entries has this block of the grid; kMost is a power of two.
template <class Table>
__device__ inline int entry_of(const Table& table, std::int64_t block) {
  int found = 0;
  for (int stride = Table::kMost / 2; stride > 0; stride /= 2) {
    if (found + stride < table.count && table.entries[found + stride].first_block <= block) found += stride;
  }
  return found;
}

// Null for a factor of 1.
inline const float* device_factor(const Tensor& factor) {
  if (factor.data == nullptr) return nullptr;
  require_equal_sizes("a factor among", factor.elements(), 1);
  return device_f32(factor);
}

}  // namespace tutti::cuda
