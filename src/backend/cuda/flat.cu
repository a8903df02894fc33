// Element-wise vector operations. They round as on the CPU, so that both give the same bits.

#include "tutti/base/error.hpp"

#include "backend/cuda/backend.hpp"
#include "backend/cuda/runtime.hpp"
#include "backend/requests.hpp"
#include "flat.cuh"
#include "floats.cuh"

#include <cstring>
#include <initializer_list>
#include <vector>

namespace tutti::cuda {
namespace {

struct AddElements {
  float* to;
  const float* from;
};

// to = kept * to + share * from
struct BlendElements {
  float* to;
  const float* from;
  float kept;
  float share;
};

template <class To, class From>
struct ConvertElements {
  To* to;
  const From* from;
};

struct SearchElements {
  const float* values;
  const std::int64_t* ends;
  std::int64_t slices;
  std::int64_t offset;
  std::int32_t* found;
  const std::int32_t* only_if;  // or null
};

struct SgdElements {
  float* weights;
  const float* gradients;
  float* velocity;  // or null
  float learning_rate;
  float momentum;
  float weight_decay;
  bool nesterov;
  const float* gradient_factor;  // or null
  const float* rate_factor;      // or null
  const float* rate;             // null: learning_rate
};

struct AdamWElements {
  float* weights;
  const float* gradients;
  float* first;
  float* second;
  AdamWFactors of;
  const AdamWFactors* factors;   // null: of
  const float* gradient_factor;  // or null
};

// A few bytes on their way to the device.
struct SmallCopy {
  std::uint8_t bytes[CudaBackend::kSmallBytes];
};

struct FlatExtent {
  std::int64_t elements = 0;
  bool aligned = false;  // all pointers, to 16 bytes
};

constexpr int kThreads = 256;

template <int kSize>
using FloatVec = Vec<float, kSize>;

__device__ float factor_at(const float* factor) { return factor == nullptr ? 1.0f : *factor; }

// Intrinsics are never contracted to FMA, unlike operators, so the bits are the CPU's.
template <int kSize>
__device__ void step(const AddElements& work, std::int64_t at) {
  FloatVec<kSize> to = load<kSize>(work.to, at);
  const FloatVec<kSize> from = load<kSize>(work.from, at);
  for (int i = 0; i < kSize; ++i) to.values[i] = __fadd_rn(to.values[i], from.values[i]);
  store(work.to, at, to);
}

template <int kSize>
__device__ void step(const BlendElements& work, std::int64_t at) {
  FloatVec<kSize> to = load<kSize>(work.to, at);
  const FloatVec<kSize> from = load<kSize>(work.from, at);
  for (int i = 0; i < kSize; ++i) {
    to.values[i] = __fadd_rn(__fmul_rn(work.kept, to.values[i]), __fmul_rn(work.share, from.values[i]));
  }
  store(work.to, at, to);
}

template <int kSize, class To, class From>
__device__ void step(const ConvertElements<To, From>& work, std::int64_t at) {
  const Vec<From, kSize> from = load<kSize>(work.from, at);
  Vec<To, kSize> to;
  for (int i = 0; i < kSize; ++i) set(to.values[i], to_float(from.values[i]));
  store(work.to, at, to);
}

// The first slice that ends after the element.
__device__ std::int64_t slice_of(const SearchElements& work, std::int64_t element) {
  std::int64_t first = 0;
  for (std::int64_t last = work.slices; first < last;) {
    const std::int64_t middle = (first + last) / 2;
    if (work.ends[middle] <= element) {
      first = middle + 1;
    } else {
      last = middle;
    }
  }
  return first;
}

template <int kSize>
__device__ void step(const SearchElements& work, std::int64_t at) {
  constexpr int kInfinity = 0x7F800000;
  if (work.only_if != nullptr && *work.only_if == 0) return;
  const FloatVec<kSize> values = load<kSize>(work.values, at);
  for (int i = 0; i < kSize; ++i) {
    if ((__float_as_int(values.values[i]) & 0x7FFFFFFF) < kInfinity) continue;
    const auto from_end = static_cast<int>(work.slices - slice_of(work, work.offset + at + i));
    atomicMax(work.found, from_end);
    return;
  }
}

template <int kSize>
__device__ void step(const SgdElements& work, std::int64_t at) {
  const float gradient_factor = factor_at(work.gradient_factor);
  const float rate_factor = factor_at(work.rate_factor);
  const float rate = work.rate == nullptr ? work.learning_rate : *work.rate;
  FloatVec<kSize> weights = load<kSize>(work.weights, at);
  FloatVec<kSize> directions = load<kSize>(work.gradients, at);
  for (int i = 0; i < kSize; ++i) {
    const float decayed =
        __fadd_rn(__fmul_rn(directions.values[i], gradient_factor), __fmul_rn(work.weight_decay, weights.values[i]));
    directions.values[i] = __fmul_rn(decayed, rate_factor);
  }
  if (work.velocity != nullptr) {
    FloatVec<kSize> velocity = load<kSize>(work.velocity, at);
    for (int i = 0; i < kSize; ++i) {
      const float moved = __fadd_rn(__fmul_rn(work.momentum, velocity.values[i]), directions.values[i]);
      velocity.values[i] = moved;
      directions.values[i] = work.nesterov ? __fadd_rn(directions.values[i], __fmul_rn(work.momentum, moved)) : moved;
    }
    store(work.velocity, at, velocity);
  }
  for (int i = 0; i < kSize; ++i) {
    weights.values[i] = __fsub_rn(weights.values[i], __fmul_rn(rate, directions.values[i]));
  }
  store(work.weights, at, weights);
}

template <int kSize>
__device__ void step(const AdamWElements& work, std::int64_t at) {
  const AdamWFactors of = work.factors == nullptr ? work.of : *work.factors;
  const float factor = factor_at(work.gradient_factor);
  FloatVec<kSize> weights = load<kSize>(work.weights, at);
  FloatVec<kSize> first = load<kSize>(work.first, at);
  FloatVec<kSize> second = load<kSize>(work.second, at);
  const FloatVec<kSize> gradients = load<kSize>(work.gradients, at);
  for (int i = 0; i < kSize; ++i) {
    const float gradient = __fmul_rn(gradients.values[i], factor);
    const float one = __fadd_rn(__fmul_rn(of.beta1, first.values[i]), __fmul_rn(of.one_minus_beta1, gradient));
    const float two =
        __fadd_rn(__fmul_rn(of.beta2, second.values[i]), __fmul_rn(of.one_minus_beta2, __fmul_rn(gradient, gradient)));
    const float root = __fadd_rn(__fmul_rn(__fsqrt_rn(two), of.inverse_root), of.epsilon);
    weights.values[i] =
        __fsub_rn(__fmul_rn(weights.values[i], of.decay_factor), __fmul_rn(of.rate, __fdiv_rn(one, root)));
    first.values[i] = one;
    second.values[i] = two;
  }
  store(work.first, at, first);
  store(work.second, at, second);
  store(work.weights, at, weights);
}

__global__ void write_bytes(const SmallCopy from, std::uint8_t* to, int bytes) {
  const int i = static_cast<int>(threadIdx.x);
  if (i < bytes) to[i] = from.bytes[i];
}

// The first `fours` threads take four elements each, the others one.
template <class Work>
struct FlatEntry {
  Work work;
  std::int64_t fours;
  std::int64_t elements;
};
template <class Work>
using FlatTable = BlockTable<FlatEntry<Work>, 32>;

template <class Work>
__global__ void step_each(const FlatTable<Work> table) {
  const int index = table.find_entry(blockIdx.x);
  const auto& [work, fours, elements] = table.entries[index];
  const std::int64_t thread = (blockIdx.x - table.first_blocks[index]) * kThreads + threadIdx.x;
  if (thread < fours) {
    step<4>(work, 4 * thread);
  } else if (thread + 3 * fours < elements) {
    step<1>(work, thread + 3 * fours);
  }
}

template <class Work>
FlatEntry<Work> entry_of(const Work& work, const FlatExtent& extent) {
  return {work, extent.aligned ? extent.elements / 4 : 0, extent.elements};
}

// Entries without elements have no blocks, and there may be none at all.
template <class Work>
void launch_steps(cudaStream_t stream, std::span<const FlatEntry<Work>> entries) {
  static_assert(sizeof(FlatTable<Work>) < 4000);  // the limit of kernel arguments is 4 KiB
  for_each_table<FlatTable<Work>>(entries, [&](std::span<const FlatEntry<Work>> some) {
    FlatTable<Work> table{};
    for (const FlatEntry<Work>& entry : some) {
      table.add(entry, (entry.elements - 3 * entry.fours + kThreads - 1) / kThreads);
    }
    launch(step_each<Work>, {.blocks = table.blocks, .threads = kThreads}, stream, table);
  });
}

template <class Work>
void launch_steps(cudaStream_t stream, const Work& work, const FlatExtent& extent) {
  const FlatEntry<Work> entry = entry_of(work, extent);
  launch_steps<Work>(stream, {&entry, 1});
}

// The extent of tensors of equal size; those without memory do not count.
FlatExtent extent_of(std::string_view doing, std::initializer_list<Tensor> tensors) {
  FlatExtent extent{.elements = tensors.begin()->elements(), .aligned = true};
  for (const Tensor& tensor : tensors) {
    if (tensor.data == nullptr) continue;
    require_equal_sizes(doing, extent.elements, tensor.elements());
    extent.aligned &= reinterpret_cast<std::uintptr_t>(tensor.data) % 16 == 0;
  }
  return extent;
}

}  // namespace

void CudaBackend::write_small(CudaStream& stream, const Tensor& to, const void* from) {
  SmallCopy copy{};
  std::memcpy(copy.bytes, from, to.bytes());
  launch(write_bytes, {.threads = static_cast<int>(kSmallBytes)}, native(stream), copy,
         static_cast<std::uint8_t*>(to.data), static_cast<int>(to.bytes()));
}

void CudaBackend::blend(Stream& stream, const Tensor& to, const Tensor& from, float share) {
  launch_steps(native(as_cuda_stream(stream)), BlendElements{device_f32(to), device_f32(from), 1 - share, share},
               extent_of("blending", {to, from}));
}

void CudaBackend::convert(Stream& stream, const Tensor& to, const Tensor& from) {
  require_conversion(to, from);
  const FlatExtent extent = extent_of("converting", {to, from});
  if (to.type == ElementType::bf16) {
    return launch_steps(native(as_cuda_stream(stream)),
                        ConvertElements<Bf16, float>{reinterpret_cast<Bf16*>(device_bf16(to)), device_f32(from)},
                        extent);
  }
  launch_steps(native(as_cuda_stream(stream)),
               ConvertElements<float, Bf16>{device_f32(to), reinterpret_cast<const Bf16*>(device_bf16(from))}, extent);
}

void CudaBackend::find_all_not_finite(Stream& stream, std::span<const NotFiniteSearch> searches) {
  std::vector<FlatEntry<SearchElements>> entries;
  for (const NotFiniteSearch& search : searches) {
    require_search(search);
    entries.push_back(
        entry_of(SearchElements{.values = device_f32(search.values),
                                .ends = device_i64(search.ends),
                                .slices = search.ends.elements(),
                                .offset = search.offset,
                                .found = device_i32(search.found),
                                .only_if = search.only_if.data == nullptr ? nullptr : device_i32(search.only_if)},
                 extent_of("looking at", {search.values})));
  }
  launch_steps<SearchElements>(native(as_cuda_stream(stream)), entries);
}

void CudaBackend::sgd_steps(Stream& stream, std::span<const SgdStep> steps) {
  std::vector<FlatEntry<SgdElements>> entries;
  for (const SgdStep& step : steps) {
    const bool has_velocity = step.velocity.data != nullptr;
    if (!has_velocity && step.momentum != 0) {
      throw Error(ErrorSource::internal, "a gradient step with momentum has no velocity");
    }
    entries.push_back(entry_of(SgdElements{.weights = device_f32(step.weights),
                                           .gradients = device_f32(step.gradients),
                                           .velocity = has_velocity ? device_f32(step.velocity) : nullptr,
                                           .learning_rate = step.learning_rate,
                                           .momentum = step.momentum,
                                           .weight_decay = step.weight_decay,
                                           .nesterov = step.nesterov,
                                           .gradient_factor = device_factor(step.gradient_factor),
                                           .rate_factor = device_factor(step.rate_factor),
                                           .rate = device_factor(step.rate)},
                               extent_of("a gradient step over", {step.weights, step.gradients, step.velocity})));
  }
  launch_steps<SgdElements>(native(as_cuda_stream(stream)), entries);
}

void CudaBackend::adamw_steps(Stream& stream, std::span<const AdamWStep> steps) {
  std::vector<FlatEntry<AdamWElements>> entries;
  for (const AdamWStep& step : steps) {
    entries.push_back(entry_of(
        AdamWElements{.weights = device_f32(step.weights),
                      .gradients = device_f32(step.gradients),
                      .first = device_f32(step.first_moment),
                      .second = device_f32(step.second_moment),
                      .of = factors_of(step),
                      .factors = step.factors.data == nullptr
                                     ? nullptr
                                     : reinterpret_cast<const AdamWFactors*>(device_f32(step.factors)),
                      .gradient_factor = device_factor(step.gradient_factor)},
        extent_of("a gradient step over", {step.weights, step.gradients, step.first_moment, step.second_moment})));
  }
  launch_steps<AdamWElements>(native(as_cuda_stream(stream)), entries);
}

}  // namespace tutti::cuda

namespace tutti {

void add_on_cuda(CudaStream& stream, const Tensor& to, const Tensor& from) {
  cuda::launch_steps(cuda::native(stream), cuda::AddElements{cuda::device_f32(to), cuda::device_f32(from)},
                     cuda::extent_of("adding", {to, from}));
}

}  // namespace tutti
