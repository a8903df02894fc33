#pragma once
// Shared by kernels over flat memory: vector loads and stores, warp reductions, and grids over many tensors.

#include "backend/cuda/runtime.hpp"
#include "backend/requests.hpp"
#include "kernel.cuh"

#include <algorithm>
#include <initializer_list>
#include <span>
#include <vector>

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

// Elements of flat blocks, in steps of four where all blocks are aligned: step<kSize>(work, at) computes some.
struct FlatExtent {
  std::int64_t elements = 0;
  bool aligned = false;  // all pointers, to 16 bytes
};

inline bool is_aligned_to_16(std::initializer_list<const void*> addresses) {
  return std::ranges::all_of(addresses,
                             [](const void* each) { return reinterpret_cast<std::uintptr_t>(each) % 16 == 0; });
}

inline constexpr int kFlatThreads = 256;

template <int kSize>
using FloatVec = Vec<float, kSize>;

// The first `fours` threads take four elements each, the others one.
template <class Work>
struct FlatEntry {
  Work work;
  std::int64_t fours;
  std::int64_t elements;
};
template <class Work>
using FlatTable = BlockTable<FlatEntry<Work>, 32>;

template <class Work>
__global__ void step_each(const FlatTable<Work> table) {
  const int index = table.find_entry(blockIdx.x);
  const auto& [work, fours, elements] = table.entries[index];
  const std::int64_t thread = (blockIdx.x - table.first_blocks[index]) * kFlatThreads + threadIdx.x;
  if (thread < fours) {
    step<4>(work, 4 * thread);
  } else if (thread + 3 * fours < elements) {
    step<1>(work, thread + 3 * fours);
  }
}

template <class Work>
FlatEntry<Work> entry_of(const Work& work, const FlatExtent& extent) {
  return {work, extent.aligned ? extent.elements / 4 : 0, extent.elements};
}

// Entries without elements have no blocks, and there may be none at all.
template <class Work>
void launch_steps(cudaStream_t stream, std::span<const FlatEntry<Work>> entries) {
  static_assert(sizeof(FlatTable<Work>) < 4000);  // the limit of kernel arguments is 4 KiB
  for_each_table<FlatTable<Work>>(entries, [&](std::span<const FlatEntry<Work>> some) {
    FlatTable<Work> table{};
    for (const FlatEntry<Work>& entry : some) {
      table.add(entry, (entry.elements - 3 * entry.fours + kFlatThreads - 1) / kFlatThreads);
    }
    launch(step_each<Work>, {.blocks = table.blocks, .threads = kFlatThreads}, stream, table);
  });
}

template <class Work>
void launch_steps(cudaStream_t stream, const Work& work, const FlatExtent& extent) {
  const FlatEntry<Work> entry = entry_of(work, extent);
  launch_steps<Work>(stream, {&entry, 1});
}

// Null for a factor of 1.
inline const float* device_factor(const Tensor& factor) {
  if (factor.data == nullptr) return nullptr;
  require_equal_sizes("a factor among", factor.elements(), 1);
  return device_f32(factor);
}

}  // namespace tutti::cuda
