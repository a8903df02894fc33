// Fixed-point sums: one kernel launch per operation, for any number of slices. Bit-identical to the CPU.

#include "backend/cuda/backend.hpp"
#include "backend/cuda/runtime.hpp"
#include "backend/requests.hpp"
#include "flat.cuh"

#include <type_traits>

namespace tutti::cuda {
namespace {

// The position of a request's elements in the grid's block.
struct SlicedExtent {
  const std::int64_t* ends;
  const std::int32_t* exponents;
  std::int64_t slices;
  std::int64_t offset;
  std::int64_t elements;
  bool aligned;  // pairs of values and of sums, to their size
};

template <class Sum>
struct Quantize {
  const float* values;
  Sum* sums;
  bool first;
  std::int32_t* largest;
};

template <class Sum>
struct Dequantize {
  const Sum* sums;
  float* values;
};

constexpr int kThreads = 256;
constexpr int kUnroll = 4;  // loads in flight, each of a pair: two sums make up the widest access, 16 bytes
constexpr std::int64_t kBlockElements = std::int64_t{2} * kThreads * kUnroll * 2;

__device__ double power_of_two(int exponent) {
  return __longlong_as_double(static_cast<long long>(1023 + exponent) << 52);
}

// The first slice that ends after the element. The warp reads all ends, since a binary search would wait for each load.
__device__ std::int64_t slice_of(const SlicedExtent& extent, std::int64_t element) {
  int passed = 0;
#pragma unroll 4
  for (std::int64_t slice = threadIdx.x % kWarpLanes; slice < extent.slices; slice += kWarpLanes) {
    passed += extent.ends[slice] <= element ? 1 : 0;
  }
  return sum_over_warp(passed);
}

// All threads of the block must call it. A barrier is needed between two calls.
__device__ int block_max(int value) {
  __shared__ int max_bits[kThreads / kWarpLanes];
  value = over_warp(value, [](int a, int b) { return max(a, b); });
  if (threadIdx.x % kWarpLanes == 0) max_bits[threadIdx.x / kWarpLanes] = value;
  __syncthreads();
#pragma unroll
  for (int warp = 0; warp < kThreads / kWarpLanes; ++warp) value = max(value, max_bits[warp]);
  return value;
}

// The nearest integer; ties go to even.
__device__ void round_to(std::uint64_t& steps, double value) {
  steps = static_cast<std::uint64_t>(static_cast<std::int64_t>(__double2ll_rn(value)));
}
__device__ void round_to(std::uint32_t& steps, double value) {
  steps = static_cast<std::uint32_t>(__double2int_rn(value));
}

// A thread's share of elements begin .. end - 1, all of one slice. Returns the greatest bits of |value|.
template <int kSize, class Sum>
__device__ int step(const Quantize<Sum>& work, std::int64_t begin, std::int64_t end, int exponent) {
  const double scale = power_of_two(exponent);
  int max_bits = 0;
  for (std::int64_t at = begin + kSize * static_cast<int>(threadIdx.x); at < end; at += kUnroll * kSize * kThreads) {
    Vec<float, kSize> values[kUnroll] = {};
    Vec<Sum, kSize> sums[kUnroll] = {};
#pragma unroll
    for (int k = 0; k < kUnroll; ++k) {
      if (at + k * kSize * kThreads >= end) continue;
      values[k] = load<kSize>(work.values, at + k * kSize * kThreads);
      if (!work.first) sums[k] = load<kSize>(work.sums, at + k * kSize * kThreads);
    }
#pragma unroll
    for (int k = 0; k < kUnroll; ++k) {
      if (at + k * kSize * kThreads >= end) continue;
#pragma unroll
      for (int i = 0; i < kSize; ++i) {
        const float value = values[k].values[i];
        max_bits = max(max_bits, __float_as_int(value) & 0x7FFFFFFF);
        std::make_unsigned_t<Sum> steps;  // unsigned sums may wrap around
        round_to(steps, static_cast<double>(value) * scale);
        sums[k].values[i] = static_cast<Sum>(static_cast<std::make_unsigned_t<Sum>>(sums[k].values[i]) + steps);
      }
      store(work.sums, at + k * kSize * kThreads, sums[k]);
    }
  }
  return max_bits;
}

template <int kSize, class Sum>
__device__ int step(const Dequantize<Sum>& work, std::int64_t begin, std::int64_t end, int exponent) {
  constexpr double kSmallestNormal = 0x1p-126;
  const double scale = power_of_two(-exponent);
  for (std::int64_t at = begin + kSize * static_cast<int>(threadIdx.x); at < end; at += kUnroll * kSize * kThreads) {
    Vec<Sum, kSize> sums[kUnroll] = {};
#pragma unroll
    for (int k = 0; k < kUnroll; ++k) {
      if (at + k * kSize * kThreads < end) sums[k] = load<kSize>(work.sums, at + k * kSize * kThreads);
    }
#pragma unroll
    for (int k = 0; k < kUnroll; ++k) {
      if (at + k * kSize * kThreads >= end) continue;
      Vec<float, kSize> values;
#pragma unroll
      for (int i = 0; i < kSize; ++i) {
        const double value = static_cast<double>(sums[k].values[i]) * scale;
        values.values[i] = fabs(value) < kSmallestNormal ? 0.0f : static_cast<float>(value);
      }
      store(work.values, at + k * kSize * kThreads, values);
    }
  }
  return 0;
}

template <class Sum>
__device__ void raise_largest(const Quantize<Sum>& work, std::int64_t slice, int max_bits) {
  const int of_block = block_max(max_bits);
  if (threadIdx.x == 0) atomicMax(work.largest + slice, of_block);
  __syncthreads();
}
template <class Sum>
__device__ void raise_largest(const Dequantize<Sum>&, std::int64_t, int) {}

// A block loops over its slices; pairs begin at even elements.
template <class Work>
__global__ void __launch_bounds__(kThreads) step_slices(const Work work, const SlicedExtent extent) {
  std::int64_t at = static_cast<std::int64_t>(blockIdx.x) * kBlockElements;
  const std::int64_t stop = min(extent.elements, at + kBlockElements);
  for (std::int64_t slice = slice_of(extent, extent.offset + at); at < stop; ++slice) {
    const std::int64_t end = min(stop, extent.ends[slice] - extent.offset);
    const std::int64_t first = extent.aligned ? min(end, at + at % 2) : end;
    const std::int64_t last = first + (end - first) / 2 * 2;
    const int exponent = extent.exponents[slice];
    int max_bits = step<2>(work, first, last, exponent);
    if (at < first) max_bits = max(max_bits, step<1>(work, at, first, exponent));
    if (last < end) max_bits = max(max_bits, step<1>(work, last, end, exponent));
    raise_largest(work, slice, max_bits);
    at = end;
  }
}

template <class Work>
void launch_steps(Stream& stream, const Work& work, const SlicedExtent& extent) {
  const std::int64_t blocks = (extent.elements + kBlockElements - 1) / kBlockElements;
  launch(step_slices<Work>, Grid{.blocks = blocks, .threads = kThreads}, native(as_cuda_stream(stream)), work, extent);
}

template <class Request>
SlicedExtent extent_of(const FixedPointGrid& grid, const Request& request) {
  require_fixed_point(grid, request);
  const auto is_aligned = [](const Tensor& tensor) {
    return reinterpret_cast<std::uintptr_t>(tensor.data) % (2 * bytes_of(tensor.type)) == 0;
  };
  return {.ends = device_i64(grid.ends),
          .exponents = device_i32(grid.exponents),
          .slices = grid.ends.elements(),
          .offset = request.offset,
          .elements = request.values.elements(),
          .aligned = is_aligned(request.values) && is_aligned(request.sums)};
}

// Calls work(sums) for the type of the sums.
template <class Work>
void with_sums(const Tensor& sums, const Work& work) {
  if (sums.type == ElementType::i32) return work(device_i32(sums));
  work(device_i64(sums));
}

}  // namespace

void CudaBackend::to_fixed_point(Stream& stream, const FixedPointGrid& grid, const ToFixedPoint& request) {
  const SlicedExtent extent = extent_of(grid, request);
  with_sums(request.sums, [&]<class Sum>(Sum* sums) {
    launch_steps(stream,
                 Quantize<Sum>{.values = device_f32(request.values),
                               .sums = sums,
                               .first = request.first,
                               .largest = device_i32(request.largest)},
                 extent);
  });
}

void CudaBackend::from_fixed_point(Stream& stream, const FixedPointGrid& grid, const FromFixedPoint& request) {
  const SlicedExtent extent = extent_of(grid, request);
  with_sums(request.sums, [&]<class Sum>(Sum* sums) {
    launch_steps(stream, Dequantize<Sum>{.sums = sums, .values = device_f32(request.values)}, extent);
  });
}

}  // namespace tutti::cuda
