#include "tutti/base/error.hpp"

#include "backend/cuda/convolution.hpp"
#include "backend/cuda/runtime.hpp"
#include "floats.cuh"

#include <algorithm>
#include <array>
#include <limits>

namespace tutti::cuda {
namespace {

constexpr int kThreads = 256;

// Random values in -1 .. 1: processors run faster on zeros than on real activations.
__device__ inline float random_value(std::uint32_t number) {
  number = (number ^ number >> 16) * 0x7feb352du;
  number = (number ^ number >> 15) * 0x846ca68bu;
  return static_cast<float>(static_cast<std::int32_t>(number ^ number >> 16)) * 0x1p-31f;
}

template <class T>
__global__ void random_values(void* to, std::int64_t packs) {
  const std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (i >= packs) return;
  Floats<T> values;
#pragma unroll
  for (int k = 0; k < Floats<T>::kSize; ++k) {
    values.values[k] = random_value(static_cast<std::uint32_t>(i * Floats<T>::kSize + k));
  }
  store(to, i, values);
}

// Bytes written between runs: more than the caches hold, and long enough that the run is enqueued before it starts.
constexpr std::size_t kCacheFlushBytes = std::size_t{256} << 20;
constexpr std::size_t kSamples = 5;

struct TensorBytes {
  std::size_t input;
  std::size_t filters;
  std::size_t output;
};

TensorBytes bytes_of_tensors(const ConvolutionShape& shape) {
  const auto bytes = [&](std::int64_t values) {
    return static_cast<std::size_t>(values) * (shape.precision == Precision::bf16 ? sizeof(Bf16) : sizeof(float));
  };
  return {bytes(shape.samples * shape.height * shape.width * shape.channels),
          bytes(shape.outputs * shape.kernel_height * shape.kernel_width * shape.channels),
          bytes(shape.samples * shape.output_height() * shape.output_width() * shape.outputs)};
}

// The median time of one run; infinity if it fails.
float median_milliseconds(int device, CudaStream& stream, const Buffer& between, const std::function<void()>& run) {
  const auto begin = make_timed_cuda_event(device);
  const auto end = make_timed_cuda_event(device);
  try {
    run();
    std::array<double, kSamples> seconds{};
    for (double& sample : seconds) {
      check(cudaMemsetAsync(between.data(), 0, between.bytes(), native(stream)));
      stream.record(*begin);
      run();
      stream.record(*end);
      stream.await(*end);
      sample = end->seconds_since(*begin);
    }
    std::ranges::sort(seconds);
    return static_cast<float>(seconds[kSamples / 2] * 1e3);
  } catch (const Error& error) {
    if (error.source() != ErrorSource::cudnn) throw;
    return std::numeric_limits<float>::infinity();
  }
}

}  // namespace

std::vector<float> measure_plans(int device, const ConvolutionShape& shape,
                                 std::span<const std::unique_ptr<ConvolutionPlan>> plans) {
  const TensorBytes bytes = bytes_of_tensors(shape);
  std::size_t scratch_bytes = 0;
  for (const auto& plan : plans) scratch_bytes = std::max(scratch_bytes, plan->scratch_bytes());
  // Twice what is written between runs: half of it stays free.
  const std::size_t wanted = bytes.input + bytes.filters + bytes.output + scratch_bytes + 2 * kCacheFlushBytes;
  if (wanted >= static_cast<std::size_t>(free_bytes(device))) return {};

  const auto stream = make_cuda_stream(device);
  const Buffer between = allocate_cuda(device, kCacheFlushBytes);
  const Buffer scratch = allocate_cuda(device, scratch_bytes);
  const Buffer input = allocate_cuda(device, bytes.input);
  const Buffer filters = allocate_cuda(device, bytes.filters);
  const Buffer output = allocate_cuda(device, bytes.output);
  for (const Buffer* tensor : {&input, &filters, &output}) {
    const auto packs = static_cast<std::int64_t>(tensor->bytes() / kPackBytes);
    launch(shape.precision == Precision::bf16 ? random_values<Bf16> : random_values<float>,
           {.blocks = (packs + kThreads - 1) / kThreads, .threads = kThreads}, native(*stream), tensor->data(), packs);
  }
  std::vector<float> times;
  for (const auto& plan : plans) {
    times.push_back(median_milliseconds(device, *stream, between, [&] {
      plan->run(*stream, {input.data(), filters.data(), output.data()}, scratch.data());
    }));
  }
  return times;
}

}  // namespace tutti::cuda
