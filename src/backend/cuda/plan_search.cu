#include "tutti/base/error.hpp"
#include "tutti/base/unique_handle.hpp"

#include "backend/cuda/plan_search.hpp"
#include "backend/cuda/runtime.hpp"
#include "floats.cuh"

#include <algorithm>
#include <array>
#include <limits>

namespace tutti::cuda {
namespace {

constexpr int kThreads = 256;

// Values in -1 .. 1 with all digits random: on zeros processors run faster than on what networks hold.
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

// More than the caches hold, and long enough that the host is ahead of the device when a run begins.
constexpr std::size_t kBytesBetween = std::size_t{256} << 20;
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

class Timer {
 public:
  explicit Timer(cudaStream_t stream) : stream_(stream), begin_(create()), end_(create()) {}

  template <class Work>
  float milliseconds(const Work& work) {
    check(cudaEventRecord(begin_.get(), stream_));
    work();
    check(cudaEventRecord(end_.get(), stream_));
    check(cudaEventSynchronize(end_.get()));
    float elapsed = 0;
    check(cudaEventElapsedTime(&elapsed, begin_.get(), end_.get()));
    return elapsed;
  }

 private:
  struct Destroy {
    void operator()(cudaEvent_t event) const noexcept { static_cast<void>(cudaEventDestroy(event)); }
  };
  using Handle = UniqueHandle<cudaEvent_t, Destroy>;

  static Handle create() {
    cudaEvent_t event = nullptr;
    check(cudaEventCreate(&event));
    return Handle(event);
  }

  cudaStream_t stream_;
  Handle begin_;
  Handle end_;
};

}  // namespace

PlanSearch::PlanSearch(int device, const ConvolutionShape& shape, std::size_t scratch_bytes)
    : stream_(make_cuda_stream(device)),
      scratch_(allocate_cuda(device, scratch_bytes)),
      between_(allocate_cuda(device, kBytesBetween)) {
  const TensorBytes bytes = bytes_of_tensors(shape);
  input_ = allocate_cuda(device, bytes.input);
  filters_ = allocate_cuda(device, bytes.filters);
  output_ = allocate_cuda(device, bytes.output);
  for (const Buffer* tensor : {&input_, &filters_, &output_}) {
    const auto packs = static_cast<std::int64_t>(tensor->bytes() / kPackBytes);
    launch(shape.precision == Precision::bf16 ? random_values<Bf16> : random_values<float>,
           {.blocks = (packs + kThreads - 1) / kThreads, .threads = kThreads}, native(*stream_), tensor->data(), packs);
  }
}

bool PlanSearch::has_room(int device, const ConvolutionShape& shape, std::size_t scratch_bytes) {
  const TensorBytes bytes = bytes_of_tensors(shape);
  // As much again as is written between runs stays free.
  return bytes.input + bytes.filters + bytes.output + scratch_bytes + 2 * kBytesBetween <
         static_cast<std::size_t>(free_bytes(device));
}

float PlanSearch::milliseconds(ConvolutionPlan& plan) {
  const ConvolutionTensors tensors{input_.data(), filters_.data(), output_.data()};
  try {
    const auto run = [&] { plan.run(*stream_, tensors, scratch_.data()); };
    Timer timer(native(*stream_));
    run();
    std::array<float, kSamples> samples{};
    for (float& sample : samples) {
      check(cudaMemsetAsync(between_.data(), 0, between_.bytes(), native(*stream_)));
      sample = timer.milliseconds(run);
    }
    std::ranges::sort(samples);
    return samples[kSamples / 2];
  } catch (const Error& error) {
    if (error.source() != ErrorSource::cudnn) throw;
    return std::numeric_limits<float>::infinity();
  }
}

}  // namespace tutti::cuda
