#include "tutti/base/error.hpp"

#include "backend/cpu/backend.hpp"
#include "backend/cpu/element.hpp"
#include "backend/requests.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numeric>

namespace tutti::cpu {
namespace {

void require_host(const Tensor& tensor) {
  if (tensor.space == MemorySpace::host) return;
  throw Error(ErrorSource::internal,
              fmt::format("the cpu backend got a tensor of {} in device memory", tensor.shape.text()));
}

// The value of an optional factor; 1 if it is empty.
float factor_of(const Tensor& factor) {
  if (factor.data == nullptr) return 1;
  require_equal_sizes("a factor among", host_f32(factor).size(), 1);
  return host_f32(factor)[0];
}

enum class Momentum { none, plain, nesterov };

// The compiler moves the choice of the form out of the loop only when it is a constant. Factors of 1 change no bit.
template <Momentum kMomentum>
void step_each(const SgdStep& step, float* velocity) {
  const std::span<float> weights = host_f32(step.weights);
  const float* const gradients = host_f32(step.gradients).data();
  const float gradient_factor = factor_of(step.gradient_factor);
  const float rate_factor = factor_of(step.rate_factor);
  const float momentum = step.momentum;
  const float decay = step.weight_decay;
  const float rate = step.learning_rate;
  for (std::size_t i = 0; i < weights.size(); ++i) {
    const float gradient = (gradients[i] * gradient_factor + decay * weights[i]) * rate_factor;
    if constexpr (kMomentum == Momentum::none) {
      weights[i] -= rate * gradient;
    } else {
      const float moved = momentum * velocity[i] + gradient;
      velocity[i] = moved;
      weights[i] -= rate * (kMomentum == Momentum::nesterov ? gradient + momentum * moved : moved);
    }
  }
}

// Elements go round-robin to 8 lanes, so that the loop vectorizes; the lanes are then added in order.
double sum_block(std::span<const float> values) {
  constexpr std::size_t kLanes = 8;
  double lanes[kLanes] = {};
  const std::size_t whole = values.size() / kLanes * kLanes;
  for (std::size_t i = 0; i < whole; i += kLanes) {
    for (std::size_t lane = 0; lane < kLanes; ++lane) {
      const double value = values[i + lane];
      lanes[lane] += value * value;
    }
  }
  for (std::size_t i = whole; i < values.size(); ++i) lanes[i - whole] += double{values[i]} * values[i];
  return std::accumulate(std::begin(lanes), std::end(lanes), 0.0);
}

template <class To, class From>
void convert_each(const Tensor& to, const Tensor& from) {
  auto* const results = static_cast<To*>(to.data);
  const auto* const values = static_cast<const From*>(from.data);
  const std::int64_t elements = to.elements();
  for (std::int64_t i = 0; i < elements; ++i) set(results[i], to_float(values[i]));
}

}  // namespace

void CpuBackend::copy(Stream&, const Tensor& to, const Tensor& from) {
  require_host(to);
  require_host(from);
  require_equal_sizes("copying between", to.bytes(), from.bytes());
  if (to.bytes() > 0) std::memmove(to.data, from.data, to.bytes());
}

void CpuBackend::fill_zero(Stream&, const Tensor& tensor) {
  require_host(tensor);
  if (tensor.bytes() > 0) std::memset(tensor.data, 0, tensor.bytes());
}

void CpuBackend::add(Stream&, const Tensor& to, const Tensor& from) {
  const std::span<float> sum = host_f32(to);
  const std::span<const float> more = host_f32(from);
  require_equal_sizes("adding", sum.size(), more.size());
  for (std::size_t i = 0; i < sum.size(); ++i) sum[i] += more[i];
}

void CpuBackend::convert(Stream&, const Tensor& to, const Tensor& from) {
  require_host(to);
  require_host(from);
  require_conversion(to, from);
  to.type == ElementType::bf16 ? convert_each<Bf16, float>(to, from) : convert_each<float, Bf16>(to, from);
}

void CpuBackend::sgd_step(Stream&, const SgdStep& step) {
  const std::size_t elements = host_f32(step.weights).size();
  require_equal_sizes("a gradient step over", elements, host_f32(step.gradients).size());
  if (step.velocity.data == nullptr) {
    if (step.momentum != 0) throw Error(ErrorSource::internal, "a gradient step with momentum has no velocity");
    return step_each<Momentum::none>(step, nullptr);
  }
  const std::span<float> velocity = host_f32(step.velocity);
  require_equal_sizes("a gradient step over", elements, velocity.size());
  if (step.nesterov) return step_each<Momentum::nesterov>(step, velocity.data());
  step_each<Momentum::plain>(step, velocity.data());
}

void CpuBackend::adamw_step(Stream&, const AdamWStep& step) {
  const std::span<float> weights = host_f32(step.weights);
  const std::span<const float> gradients = host_f32(step.gradients);
  const std::span<float> first = host_f32(step.first_moment);
  const std::span<float> second = host_f32(step.second_moment);
  for (const std::size_t size : {gradients.size(), first.size(), second.size()}) {
    require_equal_sizes("a gradient step over", weights.size(), size);
  }
  const AdamWFactors of = factors_of(step);
  const float factor = factor_of(step.gradient_factor);
  for (std::size_t i = 0; i < weights.size(); ++i) {
    const float gradient = gradients[i] * factor;
    first[i] = of.beta1 * first[i] + of.one_minus_beta1 * gradient;
    second[i] = of.beta2 * second[i] + of.one_minus_beta2 * (gradient * gradient);
    weights[i] =
        weights[i] * of.decay_factor - of.rate * (first[i] / (std::sqrt(second[i]) * of.inverse_root + of.epsilon));
  }
}

void CpuBackend::sum_squares(Stream&, std::span<const Tensor> tensors, const Tensor& sums) {
  const std::span<double> results = host_f64(sums);
  require_equal_sizes("summing squares of tensors into", tensors.size(), results.size());
  for (std::size_t t = 0; t < tensors.size(); ++t) {
    const std::span<const float> values = host_f32(tensors[t]);
    double sum = 0;
    for (std::size_t i = 0; i < values.size(); i += kNormBlock) {
      sum += sum_block(values.subspan(i, std::min<std::size_t>(kNormBlock, values.size() - i)));
    }
    results[t] = sum;
  }
}

void CpuBackend::sum_runs(Stream&, const Tensor& values, const Tensor& ends, const Tensor& sums) {
  const std::span<const double> all = host_f64(values);
  const std::span<const std::int64_t> stops = host_i64(ends);
  require_equal_sizes("summing runs into", stops.size(), host_f64(sums).size());
  std::size_t at = 0;
  for (std::size_t run = 0; run < stops.size(); ++run) {
    double sum = 0;
    for (; at < static_cast<std::size_t>(stops[run]); ++at) sum += all[at];
    host_f64(sums)[run] = sum;
  }
}

// NaN stays NaN.
void CpuBackend::clip_factor(Stream&, const Tensor& squares, double max_norm, const Tensor& factor) {
  require_equal_sizes("a factor among", host_f32(factor).size(), 1);
  const std::span<const double> sums = host_f64(squares);
  const double norm = std::sqrt(std::accumulate(sums.begin(), sums.end(), 0.0));
  const double clipped = max_norm / (norm + 1e-6);
  host_f32(factor)[0] = static_cast<float>(clipped > 1 ? 1 : clipped);
}

void CpuBackend::trust_factors(Stream&, const TrustFactors& request) {
  const std::span<const double> weights = host_f64(request.weight_squares);
  const std::span<const double> gradients = host_f64(request.gradient_squares);
  const std::span<float> factors = host_f32(request.factors);
  require_equal_sizes("trust factors from", weights.size(), gradients.size());
  require_equal_sizes("trust factors into", weights.size(), factors.size());
  const double gradient_factor = factor_of(request.gradient_factor);
  for (std::size_t i = 0; i < factors.size(); ++i) {
    const double weight = std::sqrt(weights[i]);
    const double gradient = std::sqrt(gradients[i]) * gradient_factor;
    const double factor = request.trust * weight / (gradient + request.weight_decay * weight);
    factors[i] = weight == 0 || gradient == 0 ? 1.0f : static_cast<float>(factor);
  }
}

void CpuBackend::blend(Stream&, const Tensor& to, const Tensor& from, float share) {
  const std::span<float> kept = host_f32(to);
  const std::span<const float> fresh = host_f32(from);
  require_equal_sizes("blending", kept.size(), fresh.size());
  for (std::size_t i = 0; i < kept.size(); ++i) kept[i] = (1 - share) * kept[i] + share * fresh[i];
}

}  // namespace tutti::cpu
