#include "backend/cuda/plan_check.hpp"
#include "backend/cuda/runtime.hpp"
#include "floats.cuh"

#include <algorithm>
#include <cmath>
#include <limits>

namespace tutti::cuda {
namespace {

constexpr int kThreads = 256;
constexpr std::int64_t kFewestSamples = 64;
constexpr std::int64_t kMostSamples = 2048;
constexpr std::int64_t kTerms = std::int64_t{1} << 25;  // of all samples, unless that is too few samples
constexpr std::int64_t kTermsOfThread = 256;

__device__ inline std::uint32_t scrambled(std::uint32_t number) {
  number = (number ^ number >> 16) * 0x7feb352du;
  number = (number ^ number >> 15) * 0x846ca68bu;
  return number ^ number >> 16;
}

__device__ inline float random_value(std::uint32_t number) {
  return static_cast<float>(static_cast<std::int32_t>(scrambled(number))) * 0x1p-31f;
}

template <class T>
__global__ void random_values(void* to, std::int64_t packs, std::uint32_t seed) {
  const std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (i >= packs) return;
  Floats<T> values;
#pragma unroll
  for (int k = 0; k < Floats<T>::kSize; ++k) {
    values.values[k] = random_value(scrambled(seed) + static_cast<std::uint32_t>(i * Floats<T>::kSize + k));
  }
  store(to, i, values);
}

// One random element of each of `samples` equal ranges of the elements.
struct Sampling {
  std::int64_t elements = 0;
  int samples = 0;

  __device__ std::int64_t element(int sample) const {
    const std::int64_t begin = elements * sample / samples;
    const std::int64_t end = elements * (sample + 1) / samples;
    return begin + scrambled(static_cast<std::uint32_t>(sample)) % static_cast<std::uint32_t>(end - begin);
  }
};

// What the sum of one element of the result needs. `first` and `second` are the tensors that the pass reads.
struct SumWork {
  ConvolutionShape shape;
  std::int64_t output_height = 0;
  std::int64_t output_width = 0;
  const void* first = nullptr;
  const void* second = nullptr;
  std::int64_t terms = 0;
  int slices = 1;  // of the terms, each of one thread
  Sampling sampling;
};

__device__ inline bool is_in(std::int64_t i, std::int64_t extent) { return i >= 0 && i < extent; }

// Element (n, row, column, channel) of images.
template <class T>
__device__ inline double pixel(const void* images, const std::int64_t (&extents)[3], const std::int64_t (&at)[4]) {
  const std::int64_t i = ((at[0] * extents[0] + at[1]) * extents[1] + at[2]) * extents[2] + at[3];
  return to_float(static_cast<const T*>(images)[i]);
}

// One term of the sum of an element.
template <class T>
struct Forward {
  const SumWork& work;
  std::int64_t n, row, column, k, group;
  __device__ Forward(const SumWork& of, std::int64_t element) : work(of) {
    k = element % of.shape.outputs;
    column = element / of.shape.outputs % of.output_width;
    row = element / (of.shape.outputs * of.output_width) % of.output_height;
    n = element / (of.shape.outputs * of.output_width * of.output_height);
    group = k / (of.shape.outputs / of.shape.groups);
  }
  __device__ double term(std::int64_t t) const {
    const ConvolutionShape& shape = work.shape;
    const std::int64_t channels = shape.channels / shape.groups;
    const std::int64_t c = t % channels;
    const std::int64_t j = t / channels % shape.kernel_width;
    const std::int64_t i = t / channels / shape.kernel_width;
    const std::int64_t y = row * shape.stride + i * shape.dilation - shape.padding;
    const std::int64_t x = column * shape.stride + j * shape.dilation - shape.padding;
    if (!is_in(y, shape.height) || !is_in(x, shape.width)) return 0;
    return pixel<T>(work.first, {shape.height, shape.width, shape.channels}, {n, y, x, group * channels + c}) *
           pixel<T>(work.second, {shape.kernel_height, shape.kernel_width, channels}, {k, i, j, c});
  }
};

template <class T>
struct InputGradient {
  const SumWork& work;
  std::int64_t n, y, x, c, group;
  __device__ InputGradient(const SumWork& of, std::int64_t element) : work(of) {
    const ConvolutionShape& shape = of.shape;
    const std::int64_t channel = element % shape.channels;
    x = element / shape.channels % shape.width;
    y = element / (shape.channels * shape.width) % shape.height;
    n = element / (shape.channels * shape.width * shape.height);
    group = channel / (shape.channels / shape.groups);
    c = channel % (shape.channels / shape.groups);
  }
  __device__ double term(std::int64_t t) const {
    const ConvolutionShape& shape = work.shape;
    const std::int64_t outputs = shape.outputs / shape.groups;
    const std::int64_t k = group * outputs + t % outputs;
    const std::int64_t j = t / outputs % shape.kernel_width;
    const std::int64_t i = t / outputs / shape.kernel_width;
    const std::int64_t down = y + shape.padding - i * shape.dilation;
    const std::int64_t right = x + shape.padding - j * shape.dilation;
    if (down < 0 || right < 0 || down % shape.stride != 0 || right % shape.stride != 0) return 0;
    const std::int64_t row = down / shape.stride;
    const std::int64_t column = right / shape.stride;
    if (row >= work.output_height || column >= work.output_width) return 0;
    return pixel<T>(work.first, {work.output_height, work.output_width, shape.outputs}, {n, row, column, k}) *
           pixel<T>(work.second, {shape.kernel_height, shape.kernel_width, shape.channels / shape.groups},
                    {k, i, j, c});
  }
};

template <class T>
struct WeightGradient {
  const SumWork& work;
  std::int64_t k, i, j, channel;
  __device__ WeightGradient(const SumWork& of, std::int64_t element) : work(of) {
    const ConvolutionShape& shape = of.shape;
    const std::int64_t channels = shape.channels / shape.groups;
    j = element / channels % shape.kernel_width;
    i = element / (channels * shape.kernel_width) % shape.kernel_height;
    k = element / (channels * shape.kernel_width * shape.kernel_height);
    channel = k / (shape.outputs / shape.groups) * channels + element % channels;
  }
  __device__ double term(std::int64_t t) const {
    const ConvolutionShape& shape = work.shape;
    const std::int64_t column = t % work.output_width;
    const std::int64_t row = t / work.output_width % work.output_height;
    const std::int64_t n = t / work.output_width / work.output_height;
    const std::int64_t y = row * shape.stride + i * shape.dilation - shape.padding;
    const std::int64_t x = column * shape.stride + j * shape.dilation - shape.padding;
    if (!is_in(y, shape.height) || !is_in(x, shape.width)) return 0;
    return pixel<T>(work.first, {shape.height, shape.width, shape.channels}, {n, y, x, channel}) *
           pixel<T>(work.second, {work.output_height, work.output_width, shape.outputs}, {n, row, column, k});
  }
};

// Adds a slice of the terms of a sample: every n-th, so that adjacent threads read adjacent values.
template <class Element>
__global__ void slice_sums(SumWork work, double* sums) {
  const std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (i >= static_cast<std::int64_t>(work.sampling.samples) * work.slices) return;
  const Element element(work, work.sampling.element(static_cast<int>(i / work.slices)));
  double sum = 0;
  for (std::int64_t t = i % work.slices; t < work.terms; t += work.slices) sum += element.term(t);
  sums[i] = sum;
}

template <class T>
__global__ void sampled_values(const void* from, Sampling sampling, float* to) {
  const int i = static_cast<int>(blockIdx.x) * kThreads + static_cast<int>(threadIdx.x);
  if (i < sampling.samples) to[i] = to_float(static_cast<const T*>(from)[sampling.element(i)]);
}

Grid grid_for(std::int64_t threads) { return {.blocks = (threads + kThreads - 1) / kThreads, .threads = kThreads}; }

std::int64_t inputs(const ConvolutionShape& shape) {
  return shape.samples * shape.height * shape.width * shape.channels;
}
std::int64_t weights(const ConvolutionShape& shape) {
  return shape.outputs * shape.kernel_height * shape.kernel_width * shape.group_channels();
}
std::int64_t outputs(const ConvolutionShape& shape) {
  return shape.samples * shape.output_height() * shape.output_width() * shape.outputs;
}

// Of one element of the result.
std::int64_t terms_of(ConvolutionPass pass, const ConvolutionShape& shape) {
  const std::int64_t positions = shape.kernel_height * shape.kernel_width;
  switch (pass) {
    case ConvolutionPass::forward:
      return positions * shape.group_channels();
    case ConvolutionPass::input_gradient:
      return positions * (shape.outputs / shape.groups);
    case ConvolutionPass::weight_gradient:
      return shape.samples * shape.output_height() * shape.output_width();
  }
  return 0;
}

template <class T>
auto kernel_of(ConvolutionPass pass) {
  if (pass == ConvolutionPass::forward) return slice_sums<Forward<T>>;
  return pass == ConvolutionPass::input_gradient ? slice_sums<InputGradient<T>> : slice_sums<WeightGradient<T>>;
}

template <class T>
std::vector<T> copied(CudaStream& stream, const Buffer& from, std::size_t count) {
  std::vector<T> values(count);
  check(cudaMemcpyAsync(values.data(), from.data(), count * sizeof(T), cudaMemcpyDeviceToHost, native(stream)));
  stream.synchronize();
  return values;
}

}  // namespace

double largest_error(ConvolutionPass pass, const ConvolutionShape& shape) {
  const double of_sum = 6e-8 * std::sqrt(static_cast<double>(terms_of(pass, shape)));
  switch (shape.precision) {
    case Precision::fp32:
      return 1e-5 + of_sum;
    case Precision::tf32:  // 3e-4 where factors are rounded, 6e-4 where they are cut
      return 2e-3 + of_sum;
    case Precision::bf16:  // the results are rounded: 1e-3
      return 4e-3 + of_sum;
  }
  return 0;
}

PlanCheck::PlanCheck(CudaStream& stream, ConvolutionPass pass, const ConvolutionShape& shape,
                     const ConvolutionTensors& tensors)
    : stream_(stream), precision_(shape.precision) {
  const bool bf16 = precision_ == Precision::bf16;
  const std::size_t size = bf16 ? sizeof(Bf16) : sizeof(float);
  struct Content {
    void* data;
    std::int64_t values;
  };
  const Content input{tensors.input, inputs(shape)};
  const Content filters{tensors.filters, weights(shape)};
  const Content output{tensors.output, outputs(shape)};
  std::uint32_t seed = 1;
  for (const Content& tensor : {input, filters, output}) {
    const std::int64_t packs = tensor.values * static_cast<std::int64_t>(size) / 16;
    launch(bf16 ? random_values<Bf16> : random_values<float>, grid_for(packs), native(stream), tensor.data, packs,
           seed++);
  }
  const bool writes_output = pass == ConvolutionPass::forward;
  const bool writes_input = pass == ConvolutionPass::input_gradient;
  const Content& result = writes_output ? output : writes_input ? input : filters;
  result_ = result.data;
  elements_ = result.values;
  result_bytes_ = static_cast<std::size_t>(elements_) * size;

  const std::int64_t terms = terms_of(pass, shape);
  samples_ = static_cast<int>(std::min(elements_, std::clamp(kTerms / terms, kFewestSamples, kMostSamples)));
  const int slices = static_cast<int>((terms + kTermsOfThread - 1) / kTermsOfThread);
  const SumWork work{.shape = shape,
                     .output_height = shape.output_height(),
                     .output_width = shape.output_width(),
                     .first = writes_input ? output.data : input.data,
                     .second = pass == ConvolutionPass::weight_gradient ? output.data : filters.data,
                     .terms = terms,
                     .slices = slices,
                     .sampling = {elements_, samples_}};
  const std::size_t count = static_cast<std::size_t>(samples_) * static_cast<std::size_t>(slices);
  values_ = allocate_cuda(stream.device(), static_cast<std::size_t>(samples_) * sizeof(float));
  const Buffer sums = allocate_cuda(stream.device(), count * sizeof(double));
  launch(bf16 ? kernel_of<Bf16>(pass) : kernel_of<float>(pass), grid_for(static_cast<std::int64_t>(count)),
         native(stream), work, reinterpret_cast<double*>(sums.data()));
  const std::vector<double> parts = copied<double>(stream, sums, count);
  for (std::size_t i = 0; i < count; i += static_cast<std::size_t>(slices)) {
    double sum = 0;
    for (std::size_t k = 0; k < static_cast<std::size_t>(slices); ++k) sum += parts[i + k];
    expected_.push_back(sum);
  }
}

void PlanCheck::clear_result() {
  check(cudaMemsetAsync(const_cast<void*>(result_), 0xFF, result_bytes_, native(stream_)));
}

double PlanCheck::error() {
  const Sampling sampling{elements_, samples_};
  launch(precision_ == Precision::bf16 ? sampled_values<Bf16> : sampled_values<float>, grid_for(samples_),
         native(stream_), result_, sampling, reinterpret_cast<float*>(values_.data()));
  const std::vector<float> values = copied<float>(stream_, values_, static_cast<std::size_t>(samples_));
  double squares = 0;
  double errors = 0;
  for (std::size_t i = 0; i < values.size(); ++i) {
    squares += expected_[i] * expected_[i];
    errors += (values[i] - expected_[i]) * (values[i] - expected_[i]);
  }
  if (errors == 0) return 0;
  return squares == 0 ? std::numeric_limits<double>::infinity() : std::sqrt(errors / squares);
}

}  // namespace tutti::cuda
