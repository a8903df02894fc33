#include "floats.cuh"

namespace tutti::cuda {
namespace {

constexpr int kThreads = 256;

template <class T>
__global__ void gradient_addition(GradientAddition work) {
  const std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (i < work.packs) store(work.to, i, load<T>(work.sum, i));
}

}  // namespace

void launch_gradient_addition(cudaStream_t stream, ElementType type, const GradientAddition& work) {
  const Grid grid{.blocks = (work.packs + kThreads - 1) / kThreads, .threads = kThreads};
  launch(type == ElementType::bf16 ? gradient_addition<Bf16> : gradient_addition<float>, grid, stream, work);
}

}  // namespace tutti::cuda
