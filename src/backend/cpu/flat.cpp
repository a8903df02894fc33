#include "backend/cpu/flat.hpp"

#include "tutti/base/error.hpp"

#include <fmt/format.h>

#include <cstring>

namespace tutti::cpu {
namespace {

void require_host(const Tensor& tensor) {
  if (tensor.space == MemorySpace::host) return;
  throw Error(ErrorSource::internal,
              fmt::format("the cpu backend is given a tensor of {} in device memory", tensor.shape.text()));
}

void require_equal(std::string_view doing, std::size_t one, std::size_t other) {
  if (one == other) return;
  throw Error(ErrorSource::internal, fmt::format("{} tensors of {} and {}", doing, one, other));
}

void step_plain(const SgdStep& step, std::span<float> weights, std::span<const float> gradients) {
  for (std::size_t i = 0; i < weights.size(); ++i) {
    weights[i] -= step.learning_rate * (gradients[i] + step.weight_decay * weights[i]);
  }
}

// The compiler keeps the choice between the two forms out of the loop only when it is a constant.
template <bool kNesterov>
void step_with_momentum(const SgdStep& step, std::span<float> weights, std::span<const float> gradients,
                        std::span<float> velocity) {
  const float momentum = step.momentum;
  const float decay = step.weight_decay;
  const float rate = step.learning_rate;
  for (std::size_t i = 0; i < weights.size(); ++i) {
    const float gradient = gradients[i] + decay * weights[i];
    const float moved = momentum * velocity[i] + gradient;
    velocity[i] = moved;
    weights[i] -= rate * (kNesterov ? gradient + momentum * moved : moved);
  }
}

}  // namespace

void copy(const Tensor& to, const Tensor& from) {
  require_host(to);
  require_host(from);
  require_equal("copying between", to.bytes(), from.bytes());
  if (to.bytes() > 0) std::memmove(to.data, from.data, to.bytes());
}

void fill_zero(const Tensor& tensor) {
  require_host(tensor);
  if (tensor.bytes() > 0) std::memset(tensor.data, 0, tensor.bytes());
}

void add(const Tensor& to, const Tensor& from) {
  const std::span<float> sum = host_f32(to);
  const std::span<const float> more = host_f32(from);
  require_equal("adding", sum.size(), more.size());
  for (std::size_t i = 0; i < sum.size(); ++i) sum[i] += more[i];
}

void sgd_step(const SgdStep& step) {
  const std::span<float> weights = host_f32(step.weights);
  const std::span<const float> gradients = host_f32(step.gradients);
  require_equal("a gradient step over", weights.size(), gradients.size());
  if (step.velocity.data == nullptr) {
    if (step.momentum != 0) throw Error(ErrorSource::internal, "a gradient step with momentum has no velocity");
    return step_plain(step, weights, gradients);
  }
  const std::span<float> velocity = host_f32(step.velocity);
  require_equal("a gradient step over", weights.size(), velocity.size());
  if (step.nesterov) return step_with_momentum<true>(step, weights, gradients, velocity);
  step_with_momentum<false>(step, weights, gradients, velocity);
}

void blend(const Tensor& to, const Tensor& from, float share) {
  const std::span<float> kept = host_f32(to);
  const std::span<const float> fresh = host_f32(from);
  require_equal("blending", kept.size(), fresh.size());
  for (std::size_t i = 0; i < kept.size(); ++i) kept[i] = (1 - share) * kept[i] + share * fresh[i];
}

}  // namespace tutti::cpu
