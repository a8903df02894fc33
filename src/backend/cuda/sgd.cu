#include "sgd.hpp"

namespace tutti::cuda {
namespace {

constexpr int kThreads = 256;
// Enough to fill the largest device several times over; each thread then takes several elements.
constexpr std::int64_t kMostBlocks = 2048;

// The intrinsics are never fused into multiply-adds, unlike operators: the bits are the CPU's.
__global__ void sgd(const SgdBlock block) {
  const float gradient_factor = block.gradient_factor == nullptr ? 1.0f : *block.gradient_factor;
  const float rate_factor = block.rate_factor == nullptr ? 1.0f : *block.rate_factor;
  const std::int64_t stride = static_cast<std::int64_t>(gridDim.x) * kThreads;
  for (std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * kThreads + threadIdx.x; i < block.elements;
       i += stride) {
    const float weight = block.weights[i];
    const float decayed =
        __fadd_rn(__fmul_rn(block.gradients[i], gradient_factor), __fmul_rn(block.weight_decay, weight));
    const float gradient = __fmul_rn(decayed, rate_factor);
    float direction = gradient;
    if (block.velocity != nullptr) {
      const float velocity = __fadd_rn(__fmul_rn(block.momentum, block.velocity[i]), gradient);
      block.velocity[i] = velocity;
      direction = block.nesterov ? __fadd_rn(gradient, __fmul_rn(block.momentum, velocity)) : velocity;
    }
    block.weights[i] = __fsub_rn(weight, __fmul_rn(block.learning_rate, direction));
  }
}

}  // namespace

cudaError_t launch_sgd(cudaStream_t stream, const SgdBlock& block) {
  if (block.elements == 0) return cudaSuccess;
  const std::int64_t wanted = (block.elements + kThreads - 1) / kThreads;
  const auto blocks = static_cast<unsigned>(wanted < kMostBlocks ? wanted : kMostBlocks);
  sgd<<<blocks, kThreads, 0, stream>>>(block);
  return cudaGetLastError();
}

}  // namespace tutti::cuda
