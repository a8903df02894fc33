#pragma once
// Shared by kernels over flat memory: vector loads and stores, warp reductions, and grids over many tensors.

#include "backend/cuda/runtime.hpp"
#include "backend/requests.hpp"
#include "kernel.cuh"

#include <algorithm>
#include <span>

namespace tutti::cuda {

inline constexpr int kWarpLanes = 32;
inline constexpr unsigned kWholeWarp = 0xFFFFFFFFu;

template <class T, int kSize>
struct alignas(kSize * sizeof(T)) Vec {
  T values[kSize];
};

template <int kSize, class T>
__device__ inline Vec<T, kSize> load(const T* from, std::int64_t at) {
  return *reinterpret_cast<const Vec<T, kSize>*>(from + at);
}

template <int kSize, class T>
__device__ inline void store(T* to, std::int64_t at, const Vec<T, kSize>& run) {
  *reinterpret_cast<Vec<T, kSize>*>(to + at) = run;
}

// Combines the values of all lanes of a warp; every lane gets the result.
template <class T, class Combine>
__device__ inline T over_warp(T value, Combine combine) {
#pragma unroll
  for (int lanes = kWarpLanes / 2; lanes > 0; lanes /= 2) {
    value = combine(value, __shfl_xor_sync(kWholeWarp, value, lanes));
  }
  return value;
}

template <class T>
__device__ inline T sum_over_warp(T value) {
  return over_warp(value, [](T a, T b) { return a + b; });
}

// Entries with consecutive blocks in one grid. The table is passed to kernels by value.
template <class Entry, int kSize>
struct BlockTable {
  static constexpr int kCapacity = kSize;  // a power of two

  int count = 0;
  std::int64_t blocks = 0;  // of all entries
  std::int64_t first_blocks[kCapacity]{};
  Entry entries[kCapacity]{};

  void add(const Entry& entry, std::int64_t blocks_of_entry) {
    first_blocks[count] = blocks;
    entries[count++] = entry;
    blocks += blocks_of_entry;
  }
  // The index of the entry to which this block of the grid belongs.
  __device__ int find_entry(std::int64_t block) const {
    int found = 0;
    for (int stride = kCapacity / 2; stride > 0; stride /= 2) {
      if (found + stride < count && first_blocks[found + stride] <= block) found += stride;
    }
    return found;
  }
};

// Calls work(items) for chunks of items that fit a table.
template <class Table, class Item, class Work>
void for_each_table(std::span<const Item> items, const Work& work) {
  while (!items.empty()) {
    const auto some = items.first(std::min<std::size_t>(Table::kCapacity, items.size()));
    work(some);
    items = items.subspan(some.size());
  }
}

// Null for a factor of 1.
inline const float* device_factor(const Tensor& factor) {
  if (factor.data == nullptr) return nullptr;
  require_equal_sizes("a factor among", factor.elements(), 1);
  return device_f32(factor);
}

}  // namespace tutti::cuda
