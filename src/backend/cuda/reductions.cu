// Reductions, the factors computed from them, and digests. All add in the CPU's order, for the same bits.

#include "tutti/base/digest.hpp"

#include "backend/cuda/backend.hpp"
#include "backend/cuda/runtime.hpp"
#include "backend/requests.hpp"
#include "flat.cuh"

#include <algorithm>

namespace tutti::cuda {
namespace {

constexpr int kThreads = 256;

struct SquaresEntry {
  const float* values;
  std::int64_t elements;
};
using SquaresTable = BlockTable<SquaresEntry, 128>;

struct SquaresSums {
  double* by_block;
  double* by_tensor;
};

struct RunsWork {
  const double* values;
  const std::int64_t* ends;
  double* sums;
};

struct ClipWork {
  const double* squares;
  std::int64_t tensors;
  double most;
  float* factor;
};

struct TrustWork {
  const double* weight_squares;
  const double* gradient_squares;
  const float* gradient_factor;  // or null
  double trust;
  double weight_decay;
  float* factors;
  std::int64_t tensors;
};

constexpr int kLanes = 8;  // sum one block of squares, as on the CPU
constexpr int kBlocksAtOnce = 16;

// The square of an f32 is exact in f64, so FMA gives the same bits.
__device__ double sum_lane(const float* values, std::int64_t count, int lane) {
  constexpr int kUnroll = 16;  // loads in flight
  double sum = 0;
  std::int64_t i = lane;
  for (; i + (kUnroll - 1) * kLanes < count; i += kUnroll * kLanes) {
    float next[kUnroll];
    for (int k = 0; k < kUnroll; ++k) next[k] = values[i + k * kLanes];
    for (int k = 0; k < kUnroll; ++k) sum += static_cast<double>(next[k]) * static_cast<double>(next[k]);
  }
  for (; i < count; i += kLanes) sum += static_cast<double>(values[i]) * static_cast<double>(values[i]);
  return sum;
}

__global__ void sum_squares_of_blocks(const SquaresTable table, double* sums) {
  const int lane = static_cast<int>(threadIdx.x) % kLanes;
  const std::int64_t block = static_cast<std::int64_t>(blockIdx.x) * kBlocksAtOnce + threadIdx.x / kLanes;
  double sum = 0;
  if (block < table.blocks) {
    const int tensor = table.find_entry(block);
    const std::int64_t begin = (block - table.first_blocks[tensor]) * kNormBlock;
    const std::int64_t rest = table.entries[tensor].elements - begin;
    sum = sum_lane(table.entries[tensor].values + begin, rest < kNormBlock ? rest : kNormBlock, lane);
  }
  double whole = sum;
  for (int other = 1; other < kLanes; ++other) {
    whole += __shfl_down_sync(kWholeWarp, sum, static_cast<unsigned>(other));
  }
  if (lane == 0 && block < table.blocks) sums[block] = whole;
}

// Adds in order, with kUnroll loads at a time.
__device__ double sum_in_order(const double* values, std::int64_t count) {
  constexpr int kUnroll = 16;
  double sum = 0;
  std::int64_t i = 0;
  for (; i + kUnroll <= count; i += kUnroll) {
    double next[kUnroll];
    for (int k = 0; k < kUnroll; ++k) next[k] = values[i + k];
    for (int k = 0; k < kUnroll; ++k) sum += next[k];
  }
  for (; i < count; ++i) sum += values[i];
  return sum;
}

// One block per tensor with one active thread, so that none waits for a longer tensor.
__global__ void sum_squares_of_tensors(const SquaresTable table, const SquaresSums sums) {
  const int tensor = static_cast<int>(blockIdx.x);
  const std::int64_t begin = table.first_blocks[tensor];
  const std::int64_t end = tensor + 1 < table.count ? table.first_blocks[tensor + 1] : table.blocks;
  sums.by_tensor[tensor] = sum_in_order(sums.by_block + begin, end - begin);
}

__global__ void sum_each_run(const RunsWork work) {
  const std::int64_t run = blockIdx.x;
  const std::int64_t begin = run == 0 ? 0 : work.ends[run - 1];
  work.sums[run] = sum_in_order(work.values + begin, work.ends[run] - begin);
}

// NaN stays NaN.
__global__ void clip(const ClipWork work) {
  const double clipped = work.most / (sqrt(sum_in_order(work.squares, work.tensors)) + 1e-6);
  *work.factor = static_cast<float>(clipped > 1 ? 1 : clipped);
}

__global__ void trust(const TrustWork work) {
  const std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (i >= work.tensors) return;
  const double weight = sqrt(work.weight_squares[i]);
  const double gradient = sqrt(work.gradient_squares[i]) *
                          (work.gradient_factor == nullptr ? 1.0 : static_cast<double>(*work.gradient_factor));
  const double factor = work.trust * weight / __dadd_rn(gradient, __dmul_rn(work.weight_decay, weight));
  work.factors[i] = weight == 0 || gradient == 0 ? 1.0f : static_cast<float>(factor);
}

SquaresTable table_of(std::span<const Tensor> tensors) {
  SquaresTable table;
  for (const Tensor& tensor : tensors) {
    table.add({device_f32(tensor), tensor.elements()}, (tensor.elements() + kNormBlock - 1) / kNormBlock);
  }
  return table;
}

constexpr std::int64_t kDigestBlock = 16384;  // elements that one block of the kernel digests

struct DigestEntry {
  const void* values;
  std::int64_t elements;
  std::uint64_t start;
  bool is_wide;     // elements of 64 bits, not of 32
  bool is_aligned;  // to 16 bytes
};
using DigestTable = BlockTable<DigestEntry, 64>;

__device__ std::uint64_t mix(std::uint64_t z) {
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
  return z ^ (z >> 31);
}

// A thread's share of the digest of elements begin .. end - 1, in runs of kSize.
template <int kSize, class Element>
__device__ std::uint64_t sum_of(const DigestEntry& entry, std::int64_t begin, std::int64_t end) {
  constexpr int kUnroll = 4;  // loads in flight
  const auto* const values = static_cast<const Element*>(entry.values);
  std::uint64_t sum = 0;
  for (std::int64_t at = begin + kSize * static_cast<int>(threadIdx.x); at < end; at += kUnroll * kSize * kThreads) {
    Vec<Element, kSize> runs[kUnroll] = {};
#pragma unroll
    for (int k = 0; k < kUnroll; ++k) {
      const std::int64_t place = at + k * kSize * kThreads;
      if (place < end) runs[k] = load<kSize>(values, place);
    }
#pragma unroll
    for (int k = 0; k < kUnroll; ++k) {
      const std::int64_t place = at + k * kSize * kThreads;
      if (place >= end) continue;
#pragma unroll
      for (int i = 0; i < kSize; ++i) {
        sum += mix(runs[k].values[i] + entry.start + static_cast<std::uint64_t>(place + i + 1) * kDigestStride);
      }
    }
  }
  return sum;
}

// Elements begin .. end - 1 of a block, which begins at a multiple of 16 bytes where the tensor does.
template <class Element>
__device__ std::uint64_t sum_of_thread(const DigestEntry& entry, std::int64_t begin, std::int64_t end) {
  constexpr int kSize = 16 / sizeof(Element);
  const std::int64_t whole = entry.is_aligned ? begin + (end - begin) / kSize * kSize : begin;
  return sum_of<kSize, Element>(entry, begin, whole) + sum_of<1, Element>(entry, whole, end);
}

__global__ void __launch_bounds__(kThreads) digest_blocks(const DigestTable table, std::int64_t* digests) {
  __shared__ std::uint64_t of_warps[kThreads / kWarpLanes];
  const int tensor = table.find_entry(blockIdx.x);
  const DigestEntry& entry = table.entries[tensor];
  const std::int64_t begin = (static_cast<std::int64_t>(blockIdx.x) - table.first_blocks[tensor]) * kDigestBlock;
  const std::int64_t end = min(entry.elements, begin + kDigestBlock);
  std::uint64_t sum =
      entry.is_wide ? sum_of_thread<std::uint64_t>(entry, begin, end) : sum_of_thread<std::uint32_t>(entry, begin, end);
  sum = sum_over_warp(sum);
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
    table.add({.values = values.data,
               .elements = values.elements(),
               .start = start,
               .is_wide = bytes_of(values.type) == sizeof(std::uint64_t),
               .is_aligned = reinterpret_cast<std::uintptr_t>(values.data) % 16 == 0},
              (values.elements() + kDigestBlock - 1) / kDigestBlock);
  }
  return table;
}

}  // namespace

void CudaBackend::sum_squares(Stream& stream, std::span<const Tensor> tensors, const Tensor& sums) {
  require_equal_sizes("summing squares of tensors into", static_cast<std::int64_t>(tensors.size()), sums.elements());
  CudaStream& ours = as_cuda_stream(stream);
  double* by_tensor = device_f64(sums);
  for_each_table<SquaresTable>(tensors, [&](std::span<const Tensor> some) {
    const SquaresTable table = table_of(some);
    auto* const by_block = static_cast<double*>(ours.scratch(static_cast<std::size_t>(table.blocks) * sizeof(double)));
    launch(sum_squares_of_blocks,
           {.blocks = (table.blocks + kBlocksAtOnce - 1) / kBlocksAtOnce, .threads = kBlocksAtOnce * kLanes},
           native(ours), table, by_block);
    launch(sum_squares_of_tensors, {.blocks = table.count, .threads = 1}, native(ours), table,
           SquaresSums{by_block, by_tensor});
    by_tensor += table.count;
  });
}

void CudaBackend::sum_runs(Stream& stream, const Tensor& values, const Tensor& ends, const Tensor& sums) {
  require_equal_sizes("summing runs of values into", ends.elements(), sums.elements());
  const RunsWork work{device_f64(values), device_i64(ends), device_f64(sums)};
  launch(sum_each_run, {.blocks = ends.elements(), .threads = 1}, native(as_cuda_stream(stream)), work);
}

void CudaBackend::clip_factor(Stream& stream, const Tensor& squares, double max_norm, const Tensor& factor) {
  require_equal_sizes("a factor among", factor.elements(), 1);
  const ClipWork work{device_f64(squares), squares.elements(), max_norm, device_f32(factor)};
  launch(clip, {.threads = 1}, native(as_cuda_stream(stream)), work);
}

void CudaBackend::trust_factors(Stream& stream, const TrustFactors& request) {
  const std::int64_t tensors = request.factors.elements();
  require_equal_sizes("trust factors from", request.weight_squares.elements(), request.gradient_squares.elements());
  require_equal_sizes("trust factors into", request.weight_squares.elements(), tensors);
  const TrustWork work{.weight_squares = device_f64(request.weight_squares),
                       .gradient_squares = device_f64(request.gradient_squares),
                       .gradient_factor = device_factor(request.gradient_factor),
                       .trust = request.trust,
                       .weight_decay = request.weight_decay,
                       .factors = device_f32(request.factors),
                       .tensors = tensors};
  launch(trust, {.blocks = (tensors + kThreads - 1) / kThreads, .threads = kThreads}, native(as_cuda_stream(stream)),
         work);
}

void CudaBackend::add_digests(Stream& stream, std::span<const DigestedTensor> tensors, const Tensor& digests) {
  require_digests(tensors, digests, MemorySpace::cuda);
  std::int64_t* of_table = device_i64(digests);
  for_each_table<DigestTable>(tensors, [&](std::span<const DigestedTensor> some) {
    const DigestTable table = table_of(some);
    launch(digest_blocks, {.blocks = table.blocks, .threads = kThreads}, native(as_cuda_stream(stream)), table,
           of_table);
    of_table += some.size();
  });
}

}  // namespace tutti::cuda
