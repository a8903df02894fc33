#include "backend/cuda/backend.hpp"
#include "backend/cuda/runtime.hpp"
#include "backend/requests.hpp"
#include "flat.cuh"
#include "floats.cuh"
#include "grids.cuh"

#include <cmath>

namespace tutti::cuda {
namespace {

// Logits and gradient are samples x stride, of which the first `classes` are values.
struct SoftmaxWork {
  const void* logits;
  void* gradient;  // or null
  const std::int32_t* labels;
  std::int64_t samples;
  int classes;
  int stride;
  double smoothing;
  float gradient_scale;
  double* losses;         // by block
  unsigned* blocks_done;  // zero before and after
  std::int64_t* sums;     // LossSums::Fields
};

constexpr int kLanes = kWarpLanes;
constexpr int kWarps = 8;  // of a block; each takes a sample

struct SampleLoss {
  double loss;
  bool correct;
};

// Computed in f64 relative to the greatest logit, as on the CPU.
template <class T>
struct SampleLogits {
  const T* logits;
  int classes;
  int label;
  int lane;
  double greatest = 0;
  double sum = 0;  // of exp(logit - greatest)

  __device__ SampleLogits(const SoftmaxWork& work, std::int64_t sample, int lane_of_warp)
      : logits(static_cast<const T*>(work.logits) + sample * work.stride),
        classes(work.classes),
        label(work.labels[sample]),
        lane(lane_of_warp) {}

  // A label that is no class makes the loss NaN.
  __device__ SampleLoss loss(double smoothing) {
    float most = -INFINITY;
    for (int c = lane; c < classes; c += kLanes) most = fmaxf(most, to_float(logits[c]));
    greatest = static_cast<double>(over_warp(most, [](float a, float b) { return fmaxf(a, b); }));  // ignores NaN
    const float own = label >= 0 && label < classes ? to_float(logits[label]) : NAN;
    double below = 0;
    bool beaten = !(own == own);
    for (int c = lane; c < classes; c += kLanes) {
      const float logit = to_float(logits[c]);
      const double distance = static_cast<double>(logit) - greatest;
      sum += exp(distance);
      below += distance;
      beaten = beaten || logit > own || (logit == own && c < label);
    }
    sum = sum_over_warp(sum);
    double loss = log(sum) + greatest - static_cast<double>(own);
    if (smoothing != 0) {  // else the other logits may be infinite
      const double all = classes * log(sum) - sum_over_warp(below);
      loss = (1 - smoothing) * loss + smoothing / classes * all;
    }
    return {loss, sum_over_warp(beaten ? 1 : 0) == 0};
  }

  __device__ void write_gradient(const SoftmaxWork& work, T* gradient) const {
    const double others = work.smoothing / classes;
    for (int c = lane; c < work.stride; c += kLanes) {
      float value = 0;
      if (c < classes) {
        const double probability = exp(static_cast<double>(to_float(logits[c])) - greatest) / sum;
        const double wanted = (c == label ? 1 - work.smoothing : 0) + others;
        value = static_cast<float>((probability - wanted) * static_cast<double>(work.gradient_scale));
      }
      set(gradient[c], value);
    }
  }
};

// Atomic, since integers may be added in any order.
__device__ void add_figure(std::int64_t* figure, std::int64_t value) {
  atomicAdd(reinterpret_cast<unsigned long long*>(figure), static_cast<unsigned long long>(value));
}

// The same as LossSums::add_loss.
__device__ void add_loss(std::int64_t* sums, double loss) {
  if (!(fabs(loss) < INFINITY)) {
    add_figure(sums + LossSums::kNotFinite, 1);
    return;
  }
  double unit = LossSums::kLargestUnit;
  for (int figure = LossSums::kFields; figure-- > LossSums::kLargeLosses; unit /= LossSums::kLossBase) {
    const double digit = trunc(loss / unit);
    if (digit != 0) add_figure(sums + figure, static_cast<std::int64_t>(digit));
    loss -= digit * unit;
  }
  add_figure(sums, llrint(loss * LossSums::kLossScale));
}

// One warp adds the losses, in an order that depends on the number of blocks alone.
__device__ void add_losses(const SoftmaxWork& work, int lane) {
  double mine = 0;
  for (unsigned block = static_cast<unsigned>(lane); block < gridDim.x; block += kLanes) mine += work.losses[block];
  const double loss = sum_over_warp(mine);
  if (lane != 0) return;
  add_figure(work.sums + 2, work.samples);
  add_loss(work.sums, loss);
}

// The last block adds the loss of the call to the sums, since only then is it known whether it is finite.
template <class T>
__global__ void softmax_loss(const SoftmaxWork work) {
  __shared__ SampleLoss losses[kWarps];
  const int lane = static_cast<int>(threadIdx.x) % kLanes;
  const int warp = static_cast<int>(threadIdx.x) / kLanes;
  const std::int64_t sample = static_cast<std::int64_t>(blockIdx.x) * kWarps + warp;
  SampleLoss mine{0, false};
  if (sample < work.samples) {
    SampleLogits<T> logits(work, sample, lane);
    mine = logits.loss(work.smoothing);
    if (work.gradient != nullptr) logits.write_gradient(work, static_cast<T*>(work.gradient) + sample * work.stride);
  }
  if (lane == 0) losses[warp] = mine;
  __syncthreads();
  if (threadIdx.x == 0) {
    double loss = 0;
    int correct = 0;
    for (const SampleLoss& each : losses) {
      loss += each.loss;
      correct += each.correct ? 1 : 0;
    }
    add_figure(work.sums + 1, correct);
    work.losses[blockIdx.x] = loss;
  }
  if (is_last_block(work.blocks_done, gridDim.x) && warp == 0) add_losses(work, lane);
}

std::int64_t blocks_of(std::int64_t samples) { return (samples + kWarps - 1) / kWarps; }

// The logits may also be plain.
class SoftmaxLoss final : public LossLayer {
 public:
  SoftmaxLoss(const Processor& processor, const ActivationSpec& logits, double smoothing)
      : samples_(logits.shape[0]),
        classes_(logits.shape[1]),
        stride_(is_plain(logits) ? classes_ : layout_of(logits).padded_channels),
        type_(format_of(logits).type()),
        smoothing_(smoothing),
        losses_bytes_(static_cast<std::size_t>(blocks_of(samples_)) * sizeof(double)),
        losses_(allocate_cuda(processor.device, losses_bytes_ + sizeof(unsigned))) {}

  void run(Stream& stream, const LossPass& pass) override {
    require_loss_sums(pass);
    auto* const memory = static_cast<std::byte*>(losses_.data());
    const Grid grid{.blocks = blocks_of(samples_), .threads = kWarps * kLanes};
    launch(type_ == ElementType::bf16 ? softmax_loss<Bf16> : softmax_loss<float>, grid, native(as_cuda_stream(stream)),
           SoftmaxWork{.logits = pass.logits,
                       .gradient = pass.logits_gradient,
                       .labels = pass.labels,
                       .samples = samples_,
                       .classes = static_cast<int>(classes_),
                       .stride = static_cast<int>(stride_),
                       .smoothing = smoothing_,
                       .gradient_scale = pass.gradient_scale,
                       .losses = reinterpret_cast<double*>(memory),
                       .blocks_done = reinterpret_cast<unsigned*>(memory + losses_bytes_),
                       .sums = device_i64(pass.sums)});
  }

 private:
  std::int64_t samples_;
  std::int64_t classes_;
  std::int64_t stride_;
  ElementType type_;
  double smoothing_;
  std::size_t losses_bytes_;
  Buffer losses_;  // of blocks, and how many blocks are done
};

}  // namespace

std::unique_ptr<LossLayer> CudaBackend::make_softmax_loss(const ActivationSpec& logits, double smoothing) {
  require_loss(logits.shape, smoothing);
  return std::make_unique<SoftmaxLoss>(processor_, logits, smoothing);
}

}  // namespace tutti::cuda
