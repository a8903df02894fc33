#include "backend/cuda/backend.hpp"
#include "backend/cuda/runtime.hpp"
#include "backend/requests.hpp"
#include "flat.cuh"

#include <algorithm>

// Digests of tensors in a GPU's memory: the CPU's bits.
namespace tutti::cuda {
namespace {

constexpr std::int64_t kDigestBlock = 16384;  // elements that one block of the kernel digests

// As many tensors as fit the arguments of a kernel.
struct DigestTable {
  static constexpr int kMost = 64;

  struct Entry {
    const void* values;
    std::int64_t elements;
    std::uint64_t start;
    std::int64_t first_block;  // of all blocks of the table
    bool is_wide;              // elements of 64 bits, not of 32
    bool is_aligned;           // to 16 bytes
  };
  int count = 0;
  std::int64_t blocks = 0;
  Entry entries[kMost];
};

constexpr int kThreads = 256;
constexpr std::uint64_t kStride = 0x9E3779B97F4A7C15u;

__device__ std::uint64_t mix(std::uint64_t z) {
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
  return z ^ (z >> 31);
}

// What a thread adds of elements begin .. end - 1, runs of kSize in turn.
template <int kSize, class Element>
__device__ std::uint64_t sum_of(const DigestTable::Entry& entry, std::int64_t begin, std::int64_t end) {
  constexpr int kAhead = 4;  // loads under way
  const auto* const values = static_cast<const Element*>(entry.values);
  std::uint64_t sum = 0;
  for (std::int64_t at = begin + kSize * static_cast<int>(threadIdx.x); at < end; at += kAhead * kSize * kThreads) {
    Run<Element, kSize> runs[kAhead] = {};
#pragma unroll
    for (int k = 0; k < kAhead; ++k) {
      const std::int64_t place = at + k * kSize * kThreads;
      if (place < end) runs[k] = load<kSize>(values, place);
    }
#pragma unroll
    for (int k = 0; k < kAhead; ++k) {
      const std::int64_t place = at + k * kSize * kThreads;
      if (place >= end) continue;
#pragma unroll
      for (int i = 0; i < kSize; ++i) {
        sum += mix(runs[k].values[i] + entry.start + static_cast<std::uint64_t>(place + i + 1) * kStride);
      }
    }
  }
  return sum;
}

// Elements begin .. end - 1 of a block, which begins at a multiple of 16 bytes where the tensor does.
template <class Element>
__device__ std::uint64_t sum_of_thread(const DigestTable::Entry& entry, std::int64_t begin, std::int64_t end) {
  constexpr int kSize = 16 / sizeof(Element);
  const std::int64_t whole = entry.is_aligned ? begin + (end - begin) / kSize * kSize : begin;
  return sum_of<kSize, Element>(entry, begin, whole) + sum_of<1, Element>(entry, whole, end);
}

__global__ void __launch_bounds__(kThreads) digest_blocks(const DigestTable table, std::int64_t* digests) {
  __shared__ std::uint64_t of_warps[kThreads / kWarpLanes];
  const int tensor = entry_of(table, blockIdx.x);
  const DigestTable::Entry& entry = table.entries[tensor];
  const std::int64_t begin = (static_cast<std::int64_t>(blockIdx.x) - entry.first_block) * kDigestBlock;
  const std::int64_t end = min(entry.elements, begin + kDigestBlock);
  std::uint64_t sum =
      entry.is_wide ? sum_of_thread<std::uint64_t>(entry, begin, end) : sum_of_thread<std::uint32_t>(entry, begin, end);
#pragma unroll
  for (int lanes = kWarpLanes / 2; lanes > 0; lanes /= 2) sum += __shfl_xor_sync(kWholeWarp, sum, lanes);
  if (threadIdx.x % kWarpLanes == 0) of_warps[threadIdx.x / kWarpLanes] = sum;
  __syncthreads();
  if (threadIdx.x > 0) return;
  for (int warp = 1; warp < kThreads / kWarpLanes; ++warp) sum += of_warps[warp];
  // Modulo 2^64, so that the order of the blocks does not matter.
  atomicAdd(reinterpret_cast<unsigned long long*>(digests + tensor), static_cast<unsigned long long>(sum));
}

DigestTable table_of(std::span<const DigestedTensor> tensors) {
  DigestTable table{};
  for (const auto& [values, start] : tensors) {
    table.entries[table.count++] = {.values = values.data,
                                    .elements = values.elements(),
                                    .start = start,
                                    .first_block = table.blocks,
                                    .is_wide = bytes_of(values.type) == sizeof(std::uint64_t),
                                    .is_aligned = reinterpret_cast<std::uintptr_t>(values.data) % 16 == 0};
    table.blocks += (values.elements() + kDigestBlock - 1) / kDigestBlock;
  }
  return table;
}

}  // namespace

void CudaBackend::add_digests(Stream& stream, std::span<const DigestedTensor> tensors, const Tensor& digests) {
  require_digests(tensors, digests, MemorySpace::cuda);
  std::int64_t* of_table = device_i64(digests);
  while (!tensors.empty()) {
    const auto some = tensors.first(std::min<std::size_t>(DigestTable::kMost, tensors.size()));
    const DigestTable table = table_of(some);
    launch(digest_blocks, {.blocks = table.blocks, .threads = kThreads}, native(as_cuda_stream(stream)), table,
           of_table);
    of_table += some.size();
    tensors = tensors.subspan(some.size());
  }
}

}  // namespace tutti::cuda
