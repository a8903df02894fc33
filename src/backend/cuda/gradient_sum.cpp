#include "backend/cuda/gradient_sum.hpp"

#include "backend/cuda/format.hpp"
#include "backend/cuda/native.hpp"

namespace tutti::cuda {

GradientSum gradients_of(CudaStream& stream, const LayerBackward& pass, const ActivationSpec& output) {
  const auto& gradients = pass.output_gradients;
  const auto at = [&](std::size_t i) -> void* { return i < gradients.size() ? gradients[i] : nullptr; };
  for (std::size_t i = 3; i < gradients.size(); i += 2) {
    launch_gradient_addition(native(stream), format_of(output).type(),
                             {{at(2), at(i), at(i + 1)}, at(2), static_cast<std::int64_t>(output.bytes / kPackBytes)});
  }
  return {at(0), at(1), at(2)};
}

}  // namespace tutti::cuda
