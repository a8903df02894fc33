#include "backend/cuda/backend.hpp"
#include "backend/cuda/runtime.hpp"
#include "backend/requests.hpp"
#include "flat.cuh"

#include <algorithm>

// The vector operations that sum, and what follows from the sums. The order is the CPU's, so that the bits are, too.
namespace tutti::cuda {
namespace {

constexpr int kThreads = 256;
constexpr std::int64_t kSquaresBlock = 4096;

// As many tensors as fit the arguments of a kernel.
struct SquaresTable {
  static constexpr int kMost = 128;

  struct Entry {
    const float* values;
    std::int64_t elements;
    std::int64_t first_block;  // of all blocks of the table
  };
  int count = 0;
  std::int64_t blocks = 0;
  Entry entries[kMost];
};

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

constexpr int kLanes = 8;  // that sum one block of squares, as on the CPU
constexpr int kBlocksAtOnce = 16;

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
  const std::int64_t end = tensor + 1 < table.count ? table.entries[tensor + 1].first_block : table.blocks;
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
    table.entries[table.count++] = {device_f32(tensor), tensor.elements(), table.blocks};
    table.blocks += (tensor.elements() + kSquaresBlock - 1) / kSquaresBlock;
  }
  return table;
}

}  // namespace

void CudaBackend::sum_squares(Stream& stream, std::span<const Tensor> tensors, const Tensor& sums) {
  require_equal_sizes("summing squares of tensors into", static_cast<std::int64_t>(tensors.size()), sums.elements());
  CudaStream& ours = as_cuda_stream(stream);
  double* by_tensor = device_f64(sums);
  constexpr std::size_t kMost = SquaresTable::kMost;
  for (; !tensors.empty(); tensors = tensors.subspan(std::min(kMost, tensors.size()))) {
    const SquaresTable table = table_of(tensors.first(std::min(kMost, tensors.size())));
    auto* const by_block = static_cast<double*>(ours.scratch(static_cast<std::size_t>(table.blocks) * sizeof(double)));
    launch(sum_squares_of_blocks,
           {.blocks = (table.blocks + kBlocksAtOnce - 1) / kBlocksAtOnce, .threads = kBlocksAtOnce * kLanes},
           native(ours), table, by_block);
    launch(sum_squares_of_tensors, {.blocks = table.count, .threads = 1}, native(ours), table,
           SquaresSums{by_block, by_tensor});
    by_tensor += table.count;
  }
}

void CudaBackend::sum_runs(Stream& stream, const Tensor& values, const Tensor& ends, const Tensor& sums) {
  require_equal_sizes("summing runs of values into", ends.elements(), sums.elements());
  const RunsWork work{device_f64(values), device_i64(ends), device_f64(sums)};
  launch(sum_each_run, {.blocks = ends.elements(), .threads = 1}, native(as_cuda_stream(stream)), work);
}

void CudaBackend::clip_factor(Stream& stream, const Tensor& squares, double most, const Tensor& factor) {
  require_equal_sizes("a factor among", factor.elements(), 1);
  const ClipWork work{device_f64(squares), squares.elements(), most, device_f32(factor)};
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

}  // namespace tutti::cuda
