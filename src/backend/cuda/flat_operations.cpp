#include "flat_operations.hpp"

#include "tutti/base/error.hpp"

#include "check.hpp"
#include "sgd.hpp"

#include <fmt/format.h>

#include <string_view>

namespace tutti::cuda {
namespace {

cudaStream_t native(const CudaStream& stream) { return static_cast<cudaStream_t>(stream.native()); }

float* device_f32(const Tensor& tensor, std::string_view role, std::int64_t elements) {
  const bool fits = tensor.space == MemorySpace::cuda && tensor.type == ElementType::f32;
  if (!fits || tensor.elements() != elements) {
    throw Error(ErrorSource::internal, fmt::format("the {} of an SGD step are {} of {}; {} of f32 in a GPU's memory "
                                                   "are needed",
                                                   role, tensor.elements(), name_of(tensor.type), elements));
  }
  return static_cast<float*>(tensor.data);
}

// Null for an empty tensor.
const float* optional_f32(const Tensor& tensor, std::string_view role) {
  return tensor.data == nullptr ? nullptr : device_f32(tensor, role, 1);
}

}  // namespace

void copy(CudaStream& stream, const Tensor& to, const Tensor& from) {
  if (to.bytes() != from.bytes()) {
    throw Error(ErrorSource::internal, fmt::format("{} bytes are copied to {}", from.bytes(), to.bytes()));
  }
  use_cuda_device(stream.device());
  check(cudaMemcpyAsync(to.data, from.data, from.bytes(), cudaMemcpyDefault, native(stream)));
}

void sgd_step(CudaStream& stream, const SgdStep& step) {
  const std::int64_t elements = step.weights.elements();
  const bool with_velocity = step.velocity.data != nullptr;
  if (!with_velocity && step.momentum != 0) {
    throw Error(ErrorSource::internal, "an SGD step with momentum lacks its velocity");
  }
  const SgdBlock block{.weights = device_f32(step.weights, "weights", elements),
                       .gradients = device_f32(step.gradients, "gradients", elements),
                       .velocity = with_velocity ? device_f32(step.velocity, "velocities", elements) : nullptr,
                       .gradient_factor = optional_f32(step.gradient_factor, "gradient factor"),
                       .rate_factor = optional_f32(step.rate_factor, "rate factor"),
                       .elements = elements,
                       .learning_rate = step.learning_rate,
                       .momentum = step.momentum,
                       .weight_decay = step.weight_decay,
                       .nesterov = step.nesterov};
  use_cuda_device(stream.device());
  check(launch_sgd(native(stream), block));
}

}  // namespace tutti::cuda
