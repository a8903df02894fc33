#pragma once
// What Backend computes for the optimizers.

#include "tutti/backend/tensor.hpp"

#include <cstdint>

namespace tutti {

// One step of stochastic gradient descent over flat f32 blocks of equal length, defined as in PyTorch:
//   g = (g * gradient_factor + weight_decay * w) * rate_factor;  v = momentum * v + g;
//   w -= learning_rate * (nesterov ? g + momentum * v : v)
// Factors are f32 [1] in this processor's memory; an empty tensor means 1. Without momentum, the velocity may be an
// empty tensor. `rate`, f32 [1] in this processor's memory, is the learning rate again, for a captured step, which is
// launched with other rates; an empty tensor means that there is no need for it.
struct SgdStep {
  Tensor weights;
  Tensor gradients;  // left unchanged
  Tensor velocity;
  float learning_rate = 0;
  float momentum = 0;
  float weight_decay = 0;
  bool nesterov = false;
  Tensor gradient_factor{};
  Tensor rate_factor{};
  Tensor rate{};
};

// One step of AdamW over flat f32 blocks of equal length, defined as in PyTorch (decoupled weight decay, bias
// correction):
//   g = g * gradient_factor;  w -= rate * weight_decay * w;  m = beta1 * m + (1 - beta1) * g;
//   v = beta2 * v + (1 - beta2) * g^2;  w -= rate * (m / (1 - beta1^step)) / (sqrt(v / (1 - beta2^step)) + epsilon)
// `factors`, f32 in this processor's memory, is factors_of() this step, as SgdStep::rate is the learning rate.
struct AdamWStep {
  Tensor weights;
  Tensor gradients;  // left unchanged
  Tensor first_moment;
  Tensor second_moment;
  double learning_rate = 0;
  double beta1 = 0.9;
  double beta2 = 0.999;
  double epsilon = 1e-8;
  double weight_decay = 0;
  std::int64_t step = 1;  // counted from 1
  Tensor gradient_factor{};
  Tensor factors{};
};
// What the numbers of an AdamW step amount to for one element.
struct AdamWFactors {
  float decay_factor;  // 1 - learning_rate * weight_decay
  float rate;
  float beta1;
  float beta2;
  float one_minus_beta1;
  float one_minus_beta2;
  float inverse_root;
  float epsilon;
};
AdamWFactors factors_of(const AdamWStep& step);

// For each of n tensors: factor = trust * |w| / (|g| * gradient_factor + weight_decay * |w|), 1 where either norm is 0.
struct TrustFactors {
  Tensor weight_squares;     // f64 [n]
  Tensor gradient_squares;   // f64 [n]
  Tensor gradient_factor{};  // f32 [1], or empty
  double trust = 0.001;
  double weight_decay = 0;
  Tensor factors;  // f32 [n]
};

}  // namespace tutti
