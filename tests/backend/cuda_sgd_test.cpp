// Needs a GPU: label `gpu`.

#include "tutti/backend/cuda_library.hpp"

#include <gtest/gtest.h>

#include <bit>
#include <tuple>
#include <vector>

namespace tutti {
namespace {

using Floats = std::vector<float>;

constexpr float kGradientFactor = 0.7f;
constexpr float kRateFactor = 1.3f;

Tensor host_view(Floats& values) { return {values.data(), Shape{static_cast<std::int64_t>(values.size())}}; }

Floats wave(std::size_t size, float scale, std::size_t period) {
  Floats values(size);
  for (std::size_t i = 0; i < size; ++i) values[i] = scale * (static_cast<float>(i % period) / 7.0f - 3.0f);
  return values;
}

// The definition beside SgdStep, one rounding per operation.
void reference(Floats& weights, const Floats& gradients, Floats& velocity, const SgdStep& step) {
  for (std::size_t i = 0; i < weights.size(); ++i) {
    const float g = (gradients[i] * kGradientFactor + step.weight_decay * weights[i]) * kRateFactor;
    velocity[i] = step.momentum * velocity[i] + g;
    weights[i] -= step.learning_rate * (step.nesterov ? g + step.momentum * velocity[i] : velocity[i]);
  }
}

class OnTheGpu {
 public:
  OnTheGpu(CudaStream& stream, Floats& values)
      : stream_(stream), values_(values), memory_(cuda_.allocate(0, values.size() * sizeof(float))) {
    cuda_.copy(stream_, view(), host_view(values_));
  }
  Tensor view() const { return memory_.view(Shape{static_cast<std::int64_t>(values_.size())}, ElementType::f32); }
  Floats bring_back() const {
    Floats values(values_.size());
    cuda_.copy(stream_, host_view(values), view());
    stream_.synchronize();
    return values;
  }

 private:
  const CudaLibrary& cuda_ = tutti_cuda_library();
  CudaStream& stream_;
  Floats& values_;
  Buffer memory_;
};

void expect_equal_bits(const Floats& found, const Floats& expected) {
  for (std::size_t i = 0; i < found.size(); ++i) {
    ASSERT_EQ(std::bit_cast<std::uint32_t>(found[i]), std::bit_cast<std::uint32_t>(expected[i])) << i;
  }
}

class CudaSgd : public testing::TestWithParam<std::tuple<std::size_t, float, bool>> {};

TEST_P(CudaSgd, GivesTheBitsOfTheWrittenFormula) {
  const auto [size, momentum, nesterov] = GetParam();
  Floats weights = wave(size, 0.1f, 1013);
  Floats gradients = wave(size, 0.03f, 509);
  Floats velocity = wave(size, 0.01f, 251);
  const auto stream = tutti_cuda_library().make_stream(0);
  const OnTheGpu device_weights(*stream, weights);
  const OnTheGpu device_gradients(*stream, gradients);
  const OnTheGpu device_velocity(*stream, velocity);
  Floats gradient_factor{kGradientFactor};
  Floats rate_factor{kRateFactor};
  const OnTheGpu device_gradient_factor(*stream, gradient_factor);
  const OnTheGpu device_rate_factor(*stream, rate_factor);
  const SgdStep step{.weights = device_weights.view(),
                     .gradients = device_gradients.view(),
                     .velocity = momentum != 0 ? device_velocity.view() : Tensor{},
                     .learning_rate = 0.05f,
                     .momentum = momentum,
                     .weight_decay = 5e-4f,
                     .nesterov = nesterov,
                     .gradient_factor = device_gradient_factor.view(),
                     .rate_factor = device_rate_factor.view()};
  for (int i = 0; i < 3; ++i) {
    tutti_cuda_library().sgd_step(*stream, step);
    reference(weights, gradients, velocity, step);
  }
  expect_equal_bits(device_weights.bring_back(), weights);
  expect_equal_bits(device_gradients.bring_back(), gradients);
  if (momentum != 0) expect_equal_bits(device_velocity.bring_back(), velocity);
}

INSTANTIATE_TEST_SUITE_P(Sizes, CudaSgd,
                         testing::Combine(testing::Values(0, 1, 255, 256, 100003, 3000001), testing::Values(0.0f, 0.9f),
                                          testing::Bool()));

}  // namespace
}  // namespace tutti
