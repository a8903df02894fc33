#include "backend/cpu/channel_kernels.hpp"

namespace tutti::cpu {
namespace {

float positive(float value) { return value < 0 ? 0 : value; }

template <class T>
void moments(const MomentsPass<T>& pass) {
  const std::int64_t lanes = lanes_of(pass.stretch.period);
  for (std::int64_t i = 0; i < pass.stretch.elements; ++i) {
    const double value = to_float(pass.input[pass.stretch.first + i]);
    pass.sums[i % lanes] += value;
    pass.squares[i % lanes] += value * value;
  }
}

template <class T>
void normalize(const NormalizePass<T>& pass) {
  for (std::int64_t i = 0; i < pass.stretch.elements; ++i) {
    const std::int64_t at = pass.stretch.first + i;
    const std::int64_t c = i % pass.stretch.period;
    float value = (to_float(pass.input[at]) - pass.mean[c]) * pass.factor[c] + pass.offset[c];
    if (pass.residual != nullptr) value += to_float(pass.residual[at]);
    set(pass.output[at], pass.relu ? positive(value) : value);
  }
}

template <class T>
float gathered(std::span<T* const> gradients, const T* output, std::int64_t at) {
  float sum = 0;
  for (const T* gradient : gradients) sum += to_float(gradient[at]);
  sum = output == nullptr || to_float(output[at]) > 0 ? sum : 0;
  set(gradients[0][at], sum);
  return sum;
}

template <class T>
void collect(const CollectPass<T>& pass) {
  const std::int64_t lanes = lanes_of(pass.stretch.period);
  for (std::int64_t i = 0; i < pass.stretch.elements; ++i) {
    const std::int64_t at = pass.stretch.first + i;
    const double gradient = gathered(pass.gradients, pass.output, at);
    pass.sums[i % lanes] += gradient;
    pass.products[i % lanes] += gradient * (to_float(pass.input[at]) - pass.mean[i % pass.stretch.period]);
  }
}

template <class T>
void propagate(const PropagatePass<T>& pass) {
  for (std::int64_t i = 0; i < pass.stretch.elements; ++i) {
    const std::int64_t at = pass.stretch.first + i;
    const std::int64_t c = i % pass.stretch.period;
    set(pass.input_gradient[at], to_float(pass.gradient[at]) * pass.factor[c] -
                                     (to_float(pass.input[at]) - pass.mean[c]) * pass.slope[c] - pass.offset[c]);
  }
}

template <class T>
void add(const AddPass<T>& pass) {
  for (std::int64_t i = 0; i < pass.elements; ++i) {
    const float value = to_float(pass.input[i]) + to_float(pass.residual[i]);
    set(pass.output[i], pass.relu ? positive(value) : value);
  }
}

template <class T>
void gather(const GatherPass<T>& pass) {
  for (std::int64_t i = 0; i < pass.elements; ++i) {
    const float sum = gathered(pass.gradients, pass.output, i);
    if (pass.copy != nullptr) set(pass.copy[i], sum);
  }
}

}  // namespace

template <class T>
const ChannelKernels<T>& channel_kernels() {
  static constexpr ChannelKernels<T> kKernels{moments<T>, normalize<T>, collect<T>, propagate<T>, add<T>, gather<T>};
  return kKernels;
}

template const ChannelKernels<float>& channel_kernels();
template const ChannelKernels<Bf16>& channel_kernels();

}  // namespace tutti::cpu
