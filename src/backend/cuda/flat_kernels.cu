#include "backend/cuda/flat_kernels.hpp"
#include "kernel.cuh"

namespace tutti::cuda {
namespace {

constexpr int kThreads = 256;

// Neighbouring elements, read and written as one.
template <int kSize>
struct alignas(kSize * sizeof(float)) Run {
  float values[kSize];
};

template <int kSize>
__device__ Run<kSize> load(const float* from, std::int64_t at) {
  return *reinterpret_cast<const Run<kSize>*>(from + at);
}

template <int kSize>
__device__ void store(float* to, std::int64_t at, const Run<kSize>& run) {
  *reinterpret_cast<Run<kSize>*>(to + at) = run;
}

__device__ float factor_at(const float* factor) { return factor == nullptr ? 1.0f : *factor; }

// The intrinsics are never fused into multiply-adds, unlike operators: the bits are the CPU's.
template <int kSize>
__device__ void step(const AddElements& work, std::int64_t at) {
  Run<kSize> to = load<kSize>(work.to, at);
  const Run<kSize> from = load<kSize>(work.from, at);
  for (int i = 0; i < kSize; ++i) to.values[i] = __fadd_rn(to.values[i], from.values[i]);
  store(work.to, at, to);
}

template <int kSize>
__device__ void step(const BlendElements& work, std::int64_t at) {
  Run<kSize> to = load<kSize>(work.to, at);
  const Run<kSize> from = load<kSize>(work.from, at);
  for (int i = 0; i < kSize; ++i) {
    to.values[i] = __fadd_rn(__fmul_rn(work.kept, to.values[i]), __fmul_rn(work.share, from.values[i]));
  }
  store(work.to, at, to);
}

// The first slice that ends behind the element.
__device__ std::int64_t slice_of(const SearchElements& work, std::int64_t element) {
  std::int64_t first = 0;
  for (std::int64_t last = work.slices; first < last;) {
    const std::int64_t middle = (first + last) / 2;
    if (work.ends[middle] <= element) {
      first = middle + 1;
    } else {
      last = middle;
    }
  }
  return first;
}

template <int kSize>
__device__ void step(const SearchElements& work, std::int64_t at) {
  constexpr int kInfinity = 0x7F800000;
  if (work.only_if != nullptr && *work.only_if == 0) return;
  const Run<kSize> values = load<kSize>(work.values, at);
  for (int i = 0; i < kSize; ++i) {
    if ((__float_as_int(values.values[i]) & 0x7FFFFFFF) < kInfinity) continue;
    const auto from_end = static_cast<int>(work.slices - slice_of(work, work.place + at + i));
    if (*work.found < from_end) atomicMax(work.found, from_end);
    return;
  }
}

template <int kSize>
__device__ void step(const SgdElements& work, std::int64_t at) {
  const float gradient_factor = factor_at(work.gradient_factor);
  const float rate_factor = factor_at(work.rate_factor);
  Run<kSize> weights = load<kSize>(work.weights, at);
  Run<kSize> directions = load<kSize>(work.gradients, at);
  for (int i = 0; i < kSize; ++i) {
    const float decayed =
        __fadd_rn(__fmul_rn(directions.values[i], gradient_factor), __fmul_rn(work.weight_decay, weights.values[i]));
    directions.values[i] = __fmul_rn(decayed, rate_factor);
  }
  if (work.velocity != nullptr) {
    Run<kSize> velocity = load<kSize>(work.velocity, at);
    for (int i = 0; i < kSize; ++i) {
      const float moved = __fadd_rn(__fmul_rn(work.momentum, velocity.values[i]), directions.values[i]);
      velocity.values[i] = moved;
      directions.values[i] = work.nesterov ? __fadd_rn(directions.values[i], __fmul_rn(work.momentum, moved)) : moved;
    }
    store(work.velocity, at, velocity);
  }
  for (int i = 0; i < kSize; ++i) {
    weights.values[i] = __fsub_rn(weights.values[i], __fmul_rn(work.learning_rate, directions.values[i]));
  }
  store(work.weights, at, weights);
}

template <int kSize>
__device__ void step(const AdamWElements& work, std::int64_t at) {
  const AdamWFactors& of = work.of;
  const float factor = factor_at(work.gradient_factor);
  Run<kSize> weights = load<kSize>(work.weights, at);
  Run<kSize> first = load<kSize>(work.first, at);
  Run<kSize> second = load<kSize>(work.second, at);
  const Run<kSize> gradients = load<kSize>(work.gradients, at);
  for (int i = 0; i < kSize; ++i) {
    const float gradient = __fmul_rn(gradients.values[i], factor);
    const float one = __fadd_rn(__fmul_rn(of.beta1, first.values[i]), __fmul_rn(of.fresh1, gradient));
    const float two =
        __fadd_rn(__fmul_rn(of.beta2, second.values[i]), __fmul_rn(of.fresh2, __fmul_rn(gradient, gradient)));
    const float root = __fadd_rn(__fmul_rn(__fsqrt_rn(two), of.inverse_root), of.epsilon);
    weights.values[i] = __fsub_rn(__fmul_rn(weights.values[i], of.kept), __fmul_rn(of.rate, __fdiv_rn(one, root)));
    first.values[i] = one;
    second.values[i] = two;
  }
  store(work.first, at, first);
  store(work.second, at, second);
  store(work.weights, at, weights);
}

// A thread takes four elements as long as there are `fours`, then one.
template <class Work>
__global__ void step_each(const Work work, const std::int64_t fours, const std::int64_t elements) {
  const std::int64_t thread = static_cast<std::int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (thread < fours) {
    step<4>(work, 4 * thread);
  } else if (thread + 3 * fours < elements) {
    step<1>(work, thread + 3 * fours);
  }
}

template <class Work>
void launch_steps(cudaStream_t stream, const Work& work, const FlatExtent& extent) {
  const std::int64_t fours = extent.aligned ? extent.elements / 4 : 0;
  const std::int64_t threads = extent.elements - 3 * fours;
  launch(step_each<Work>, Grid{.blocks = (threads + kThreads - 1) / kThreads, .threads = kThreads}, stream, work, fours,
         extent.elements);
}

constexpr unsigned kWholeWarp = 0xFFFFFFFFu;
constexpr int kLanes = 8;  // that sum one block of squares, as on the CPU
constexpr int kBlocksAtOnce = 16;

__device__ int entry_of(const SquaresTable& table, std::int64_t block) {
  int found = 0;
  for (int stride = SquaresTable::kMost / 2; stride > 0; stride /= 2) {
    if (found + stride < table.tensors && table.entries[found + stride].first_block <= block) found += stride;
  }
  return found;
}

// A square of an f32 is exact in f64, so that fusing changes no bit.
__device__ double sum_lane(const float* values, std::int64_t count, int lane) {
  constexpr int kAhead = 16;  // loads under way
  double sum = 0;
  std::int64_t i = lane;
  for (; i + (kAhead - 1) * kLanes < count; i += kAhead * kLanes) {
    float next[kAhead];
    for (int k = 0; k < kAhead; ++k) next[k] = values[i + k * kLanes];
    for (int k = 0; k < kAhead; ++k) sum += static_cast<double>(next[k]) * static_cast<double>(next[k]);
  }
  for (; i < count; i += kLanes) sum += static_cast<double>(values[i]) * static_cast<double>(values[i]);
  return sum;
}

__global__ void sum_squares_of_blocks(const SquaresTable table, double* sums) {
  const int lane = static_cast<int>(threadIdx.x) % kLanes;
  const std::int64_t block = static_cast<std::int64_t>(blockIdx.x) * kBlocksAtOnce + threadIdx.x / kLanes;
  double sum = 0;
  if (block < table.blocks) {
    const int tensor = entry_of(table, block);
    const std::int64_t begin = (block - table.entries[tensor].first_block) * kSquaresBlock;
    const std::int64_t rest = table.entries[tensor].elements - begin;
    sum = sum_lane(table.entries[tensor].values + begin, rest < kSquaresBlock ? rest : kSquaresBlock, lane);
  }
  double whole = sum;
  for (int other = 1; other < kLanes; ++other) {
    whole += __shfl_down_sync(kWholeWarp, sum, static_cast<unsigned>(other));
  }
  if (lane == 0 && block < table.blocks) sums[block] = whole;
}

// In order, with loads under way.
__device__ double sum_in_order(const double* values, std::int64_t count) {
  constexpr int kAhead = 16;
  double sum = 0;
  std::int64_t i = 0;
  for (; i + kAhead <= count; i += kAhead) {
    double next[kAhead];
    for (int k = 0; k < kAhead; ++k) next[k] = values[i + k];
    for (int k = 0; k < kAhead; ++k) sum += next[k];
  }
  for (; i < count; ++i) sum += values[i];
  return sum;
}

// One thread of a block for each tensor, so that none waits for a longer one.
__global__ void sum_squares_of_tensors(const SquaresTable table, const SquaresSums sums) {
  const int tensor = static_cast<int>(blockIdx.x);
  const std::int64_t begin = table.entries[tensor].first_block;
  const std::int64_t end = tensor + 1 < table.tensors ? table.entries[tensor + 1].first_block : table.blocks;
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
  const double gradient = sqrt(work.gradient_squares[i]) * static_cast<double>(factor_at(work.gradient_factor));
  const double factor = work.trust * weight / __dadd_rn(gradient, __dmul_rn(work.weight_decay, weight));
  work.factors[i] = weight == 0 || gradient == 0 ? 1.0f : static_cast<float>(factor);
}

}  // namespace

void launch_add(cudaStream_t stream, const AddElements& work, const FlatExtent& extent) {
  launch_steps(stream, work, extent);
}

void launch_blend(cudaStream_t stream, const BlendElements& work, const FlatExtent& extent) {
  launch_steps(stream, work, extent);
}

void launch_search(cudaStream_t stream, const SearchElements& work, const FlatExtent& extent) {
  launch_steps(stream, work, extent);
}

void launch_sgd(cudaStream_t stream, const SgdElements& work, const FlatExtent& extent) {
  launch_steps(stream, work, extent);
}

void launch_adamw(cudaStream_t stream, const AdamWElements& work, const FlatExtent& extent) {
  launch_steps(stream, work, extent);
}

void launch_sum_squares(cudaStream_t stream, const SquaresTable& table, const SquaresSums& sums) {
  launch(sum_squares_of_blocks,
         Grid{.blocks = (table.blocks + kBlocksAtOnce - 1) / kBlocksAtOnce, .threads = kBlocksAtOnce * kLanes}, stream,
         table, sums.by_block);
  launch(sum_squares_of_tensors, Grid{.blocks = table.tensors, .threads = 1}, stream, table, sums);
}

void launch_sum_runs(cudaStream_t stream, const RunsWork& work) {
  launch(sum_each_run, Grid{.blocks = work.runs, .threads = 1}, stream, work);
}

void launch_clip_factor(cudaStream_t stream, const ClipWork& work) { launch(clip, Grid{.threads = 1}, stream, work); }

void launch_trust_factors(cudaStream_t stream, const TrustWork& work) {
  launch(trust, Grid{.blocks = (work.tensors + kThreads - 1) / kThreads, .threads = kThreads}, stream, work);
}

}  // namespace tutti::cuda
