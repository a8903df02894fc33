#include "backend/cuda/backend.hpp"
#include "backend/cuda/runtime.hpp"
#include "backend/requests.hpp"
#include "flat.cuh"
#include "floats.cuh"
#include "grids.cuh"

#include <cmath>
#include <numeric>
#include <vector>

namespace tutti::cuda {
namespace {

// Logits and gradient are samples x stride, of which the first `classes` are values.
struct SoftmaxWork {
  const void* logits;
  void* gradient;  // or null
  const std::int32_t* labels;
  const std::int32_t* others;  // or null
  const float* shares;         // or null
  std::int64_t samples;
  int classes;
  int stride;
  double smoothing;
  const double* weights;  // of the classes; null: all are 1
  double all_weights;     // their sum
  const float* gradient_scale;
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
  const double* weights;
  int classes;
  int label;
  double share;
  int other;
  int lane;
  double max_logit = 0;
  double sum = 0;  // of exp(logit - max_logit)

  __device__ SampleLogits(const SoftmaxWork& work, std::int64_t sample, int lane_of_warp)
      : logits(static_cast<const T*>(work.logits) + sample * work.stride),
        weights(work.weights),
        classes(work.classes),
        label(work.labels[sample]),
        share(work.shares == nullptr ? 1 : static_cast<double>(work.shares[sample])),
        other(share < 1 ? work.others[sample] : label),
        lane(lane_of_warp) {}

  // NaN for a label that is no class.
  __device__ float logit_of(int of) const { return of >= 0 && of < classes ? to_float(logits[of]) : NAN; }
  __device__ double weight_of(int of) const { return weights == nullptr || of < 0 || of >= classes ? 1 : weights[of]; }

  __device__ SampleLoss loss(const SoftmaxWork& work) {
    float most = -INFINITY;
    for (int c = lane; c < classes; c += kLanes) most = fmaxf(most, to_float(logits[c]));
    max_logit = static_cast<double>(over_warp(most, [](float a, float b) { return fmaxf(a, b); }));  // ignores NaN
    const float own = logit_of(label);
    double below = 0;
    bool beaten = !(own == own);
    for (int c = lane; c < classes; c += kLanes) {
      const float logit = to_float(logits[c]);
      const double distance = static_cast<double>(logit) - max_logit;
      sum += exp(distance);
      below += weight_of(c) * distance;
      beaten = beaten || logit > own || (logit == own && c < label);
    }
    sum = sum_over_warp(sum);
    double loss = weight_of(label) * (log(sum) + max_logit - static_cast<double>(own));
    if (share < 1) {
      const double of_other = log(sum) + max_logit - static_cast<double>(logit_of(other));
      loss = share * loss + (1 - share) * weight_of(other) * of_other;
    }
    if (work.smoothing != 0) {  // else the other logits may be infinite
      const double all = work.all_weights * log(sum) - sum_over_warp(below);
      loss = (1 - work.smoothing) * loss + work.smoothing / classes * all;
    }
    return {loss, sum_over_warp(beaten ? 1 : 0) == 0};
  }

  __device__ void write_gradient(const SoftmaxWork& work, T* gradient) const {
    const double others = work.smoothing / classes;
    const double weight = share * weight_of(label) + (1 - share) * weight_of(other);
    const double wanted_of_all = weights == nullptr ? 1 : (1 - work.smoothing) * weight + others * work.all_weights;
    const double scale = static_cast<double>(*work.gradient_scale);
    for (int c = lane; c < work.stride; c += kLanes) {
      float value = 0;
      if (c < classes) {
        const double probability = exp(static_cast<double>(to_float(logits[c])) - max_logit) / sum;
        const double of_labels = (c == label ? share : 0) + (c == other ? 1 - share : 0);
        const double wanted = weight_of(c) * ((1 - work.smoothing) * of_labels + others);
        value = static_cast<float>((probability * wanted_of_all - wanted) * scale);
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
    mine = logits.loss(work);
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
  SoftmaxLoss(const Processor& processor, const ActivationSpec& logits, const LossOptions& options)
      : samples_(logits.shape[0]),
        classes_(logits.shape[1]),
        stride_(is_plain(logits) ? classes_ : layout_of(logits).padded_channels),
        type_(format_of(logits).type()),
        smoothing_(options.smoothing),
        all_weights_(static_cast<double>(classes_)),
        losses_bytes_(static_cast<std::size_t>(blocks_of(samples_)) * sizeof(double)),
        losses_(allocate_cuda(processor.device, losses_bytes_ + sizeof(unsigned))) {
    const std::vector<double>& weights = options.class_weights;
    if (weights.empty()) return;
    all_weights_ = std::accumulate(weights.begin(), weights.end(), 0.0);
    weights_ = allocate_cuda(processor.device, weights.size() * sizeof(double));
    const auto stream = make_cuda_stream(processor.device);
    check(cudaMemcpyAsync(weights_.data(), weights.data(), weights_.bytes(), cudaMemcpyHostToDevice, native(*stream)));
    stream->synchronize();
  }

  void run(Stream& stream, const LossPass& pass) override {
    require_loss_sums(pass);
    auto* const memory = static_cast<std::byte*>(losses_.data());
    const Grid grid{.blocks = blocks_of(samples_), .threads = kWarps * kLanes};
    launch(type_ == ElementType::bf16 ? softmax_loss<Bf16> : softmax_loss<float>, grid, native(as_cuda_stream(stream)),
           SoftmaxWork{.logits = pass.logits,
                       .gradient = pass.logits_gradient,
                       .labels = static_cast<const std::int32_t*>(pass.labels.data),
                       .others = static_cast<const std::int32_t*>(pass.labels.others.data),
                       .shares = static_cast<const float*>(pass.labels.shares.data),
                       .samples = samples_,
                       .classes = static_cast<int>(classes_),
                       .stride = static_cast<int>(stride_),
                       .smoothing = smoothing_,
                       .weights = static_cast<const double*>(weights_.data()),
                       .all_weights = all_weights_,
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
  Buffer weights_;  // of the classes, f64; empty: all are 1
  double all_weights_;
  std::size_t losses_bytes_;
  Buffer losses_;  // of blocks, and how many blocks are done
};

}  // namespace

std::unique_ptr<LossLayer> CudaBackend::make_softmax_loss(const ActivationSpec& logits, const LossOptions& options) {
  require_loss(logits.shape, options);
  return std::make_unique<SoftmaxLoss>(processor_, logits, options);
}

}  // namespace tutti::cuda
