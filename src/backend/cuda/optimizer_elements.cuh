#pragma once
// The updates of the optimizers, element by element, for kernels that have the gradients in flat memory or otherwise.
// They round as on the CPU, so that both give the same bits.

#include "flat.cuh"

namespace tutti::cuda {

struct SgdElements {
  float* weights;
  const float* gradients;
  float* velocity;  // or null
  float learning_rate;
  float momentum;
  float weight_decay;
  bool nesterov;
  const float* gradient_factor;  // or null
  const float* rate_factor;      // or null
  const float* rate;             // null: learning_rate
};

struct AdamWElements {
  float* weights;
  const float* gradients;
  float* first;
  float* second;
  AdamWFactors of;
  const AdamWFactors* factors;   // null: of
  const float* gradient_factor;  // or null
};

// From the tensors of a step.
SgdElements elements_of_step(const SgdStep& step);
AdamWElements elements_of_step(const AdamWStep& step);
FlatExtent extent_of_step(const SgdStep& step);
FlatExtent extent_of_step(const AdamWStep& step);

// The same from element `begin` on.
inline SgdElements from_element(SgdElements work, std::int64_t begin) {
  work.weights += begin;
  work.gradients += begin;
  if (work.velocity != nullptr) work.velocity += begin;
  return work;
}
inline AdamWElements from_element(AdamWElements work, std::int64_t begin) {
  work.weights += begin;
  work.gradients += begin;
  work.first += begin;
  work.second += begin;
  return work;
}

inline bool is_aligned(const SgdElements& work) {
  return is_aligned_to_16({work.weights, work.gradients, work.velocity});
}
inline bool is_aligned(const AdamWElements& work) {
  return is_aligned_to_16({work.weights, work.gradients, work.first, work.second});
}

// The same with the numbers in registers, for a thread that computes several elements.
__device__ inline SgdElements with_numbers(SgdElements work) {
  if (work.rate != nullptr) work.learning_rate = *work.rate;
  work.rate = nullptr;
  return work;
}
__device__ inline AdamWElements with_numbers(AdamWElements work) {
  if (work.factors != nullptr) work.of = *work.factors;
  work.factors = nullptr;
  return work;
}

__device__ inline float factor_at(const float* factor) { return factor == nullptr ? 1.0f : *factor; }

// The new weights; the optimizer's state is written. Intrinsics are never contracted to FMA, unlike operators, so the
// bits are the CPU's.
template <int kSize>
__device__ inline FloatVec<kSize> updated(const SgdElements& work, std::int64_t at, FloatVec<kSize> directions) {
  const float gradient_factor = factor_at(work.gradient_factor);
  const float rate_factor = factor_at(work.rate_factor);
  const float rate = work.rate == nullptr ? work.learning_rate : *work.rate;
  FloatVec<kSize> weights = load<kSize>(work.weights, at);
  for (int i = 0; i < kSize; ++i) {
    const float decayed =
        __fadd_rn(__fmul_rn(directions.values[i], gradient_factor), __fmul_rn(work.weight_decay, weights.values[i]));
    directions.values[i] = __fmul_rn(decayed, rate_factor);
  }
  if (work.velocity != nullptr) {
    FloatVec<kSize> velocity = load<kSize>(work.velocity, at);
    for (int i = 0; i < kSize; ++i) {
      const float moved = __fadd_rn(__fmul_rn(work.momentum, velocity.values[i]), directions.values[i]);
      velocity.values[i] = moved;
      directions.values[i] = work.nesterov ? __fadd_rn(directions.values[i], __fmul_rn(work.momentum, moved)) : moved;
    }
    store(work.velocity, at, velocity);
  }
  for (int i = 0; i < kSize; ++i) {
    weights.values[i] = __fsub_rn(weights.values[i], __fmul_rn(rate, directions.values[i]));
  }
  return weights;
}

template <int kSize>
__device__ inline FloatVec<kSize> updated(const AdamWElements& work, std::int64_t at,
                                          const FloatVec<kSize>& gradients) {
  const AdamWFactors of = work.factors == nullptr ? work.of : *work.factors;
  const float factor = factor_at(work.gradient_factor);
  FloatVec<kSize> weights = load<kSize>(work.weights, at);
  FloatVec<kSize> first = load<kSize>(work.first, at);
  FloatVec<kSize> second = load<kSize>(work.second, at);
  for (int i = 0; i < kSize; ++i) {
    const float gradient = __fmul_rn(gradients.values[i], factor);
    const float one = __fadd_rn(__fmul_rn(of.beta1, first.values[i]), __fmul_rn(of.one_minus_beta1, gradient));
    const float two =
        __fadd_rn(__fmul_rn(of.beta2, second.values[i]), __fmul_rn(of.one_minus_beta2, __fmul_rn(gradient, gradient)));
    const float root = __fadd_rn(__fmul_rn(__fsqrt_rn(two), of.inverse_root), of.epsilon);
    weights.values[i] =
        __fsub_rn(__fmul_rn(weights.values[i], of.decay_factor), __fmul_rn(of.rate, __fdiv_rn(one, root)));
    first.values[i] = one;
    second.values[i] = two;
  }
  store(work.first, at, first);
  store(work.second, at, second);
  return weights;
}

template <int kSize>
__device__ inline void step(const SgdElements& work, std::int64_t at) {
  store(work.weights, at, updated<kSize>(work, at, load<kSize>(work.gradients, at)));
}
template <int kSize>
__device__ inline void step(const AdamWElements& work, std::int64_t at) {
  store(work.weights, at, updated<kSize>(work, at, load<kSize>(work.gradients, at)));
}

}  // namespace tutti::cuda
