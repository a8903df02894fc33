// Element-wise vector operations. They round as on the CPU, so that both give the same bits.

#include "tutti/base/error.hpp"

#include "backend/cuda/backend.hpp"
#include "backend/cuda/runtime.hpp"
#include "backend/requests.hpp"
#include "flat.cuh"
#include "floats.cuh"
#include "optimizer_elements.cuh"

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

template <class T>
struct SearchElements {
  const T* values;
  const std::int64_t* ends;
  std::int64_t slices;
  std::int64_t offset;
  std::int32_t* found;
  const std::int32_t* only_if;  // or null
};

// A few bytes on their way to the device.
struct SmallCopy {
  std::uint8_t bytes[CudaBackend::kSmallBytes];
};

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
template <class T>
__device__ std::int64_t slice_of(const SearchElements<T>& work, std::int64_t element) {
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

template <int kSize, class T>
__device__ void step(const SearchElements<T>& work, std::int64_t at) {
  constexpr int kInfinity = 0x7F800000;
  if (work.only_if != nullptr && *work.only_if == 0) return;
  const Vec<T, kSize> values = load<kSize>(work.values, at);
  for (int i = 0; i < kSize; ++i) {
    if ((__float_as_int(to_float(values.values[i])) & 0x7FFFFFFF) < kInfinity) continue;
    const auto from_end = static_cast<int>(work.slices - slice_of(work, work.offset + at + i));
    atomicMax(work.found, from_end);
    return;
  }
}

__global__ void write_bytes(const SmallCopy from, std::uint8_t* to, int bytes) {
  const int i = static_cast<int>(threadIdx.x);
  if (i < bytes) to[i] = from.bytes[i];
}

// The extent of tensors of equal size; those without memory do not count.
FlatExtent extent_of(std::string_view doing, std::initializer_list<Tensor> tensors) {
  FlatExtent extent{.elements = tensors.begin()->elements(), .aligned = true};
  for (const Tensor& tensor : tensors) {
    if (tensor.data == nullptr) continue;
    require_equal_sizes(doing, extent.elements, tensor.elements());
    extent.aligned &= is_aligned_to_16({tensor.data});
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

template <class T>
FlatEntry<SearchElements<T>> entry_of(const NotFiniteSearch& search) {
  return entry_of(SearchElements<T>{.values = static_cast<const T*>(search.values.data),
                                    .ends = device_i64(search.ends),
                                    .slices = search.ends.elements(),
                                    .offset = search.offset,
                                    .found = device_i32(search.found),
                                    .only_if = search.only_if.data == nullptr ? nullptr : device_i32(search.only_if)},
                  extent_of("looking at", {search.values}));
}

void CudaBackend::find_all_not_finite(Stream& stream, std::span<const NotFiniteSearch> searches) {
  std::vector<FlatEntry<SearchElements<float>>> of_floats;
  std::vector<FlatEntry<SearchElements<Bf16>>> of_bf16;
  for (const NotFiniteSearch& search : searches) {
    require_search(search);
    if (search.values.type == ElementType::bf16) {
      device_bf16(search.values);  // throws unless it is in a GPU's memory
      of_bf16.push_back(entry_of<Bf16>(search));
    } else {
      device_f32(search.values);
      of_floats.push_back(entry_of<float>(search));
    }
  }
  launch_steps<SearchElements<float>>(native(as_cuda_stream(stream)), of_floats);
  launch_steps<SearchElements<Bf16>>(native(as_cuda_stream(stream)), of_bf16);
}

SgdElements elements_of_step(const SgdStep& step) {
  const bool has_velocity = step.velocity.data != nullptr;
  if (!has_velocity && step.momentum != 0) {
    throw Error(ErrorSource::internal, "a gradient step with momentum has no velocity");
  }
  return {.weights = device_f32(step.weights),
          .gradients = device_f32(step.gradients),
          .velocity = has_velocity ? device_f32(step.velocity) : nullptr,
          .learning_rate = step.learning_rate,
          .momentum = step.momentum,
          .weight_decay = step.weight_decay,
          .nesterov = step.nesterov,
          .gradient_factor = device_factor(step.gradient_factor),
          .rate_factor = device_factor(step.rate_factor),
          .rate = device_factor(step.rate)};
}

AdamWElements elements_of_step(const AdamWStep& step) {
  return {.weights = device_f32(step.weights),
          .gradients = device_f32(step.gradients),
          .first = device_f32(step.first_moment),
          .second = device_f32(step.second_moment),
          .of = factors_of(step),
          .factors =
              step.factors.data == nullptr ? nullptr : reinterpret_cast<const AdamWFactors*>(device_f32(step.factors)),
          .gradient_factor = device_factor(step.gradient_factor)};
}

FlatExtent extent_of_step(const SgdStep& step) {
  return extent_of("a gradient step over", {step.weights, step.gradients, step.velocity});
}

FlatExtent extent_of_step(const AdamWStep& step) {
  return extent_of("a gradient step over", {step.weights, step.gradients, step.first_moment, step.second_moment});
}

void CudaBackend::sgd_steps(Stream& stream, std::span<const SgdStep> steps) {
  std::vector<FlatEntry<SgdElements>> entries;
  for (const SgdStep& step : steps) entries.push_back(entry_of(elements_of_step(step), extent_of_step(step)));
  launch_steps<SgdElements>(native(as_cuda_stream(stream)), entries);
}

void CudaBackend::adamw_steps(Stream& stream, std::span<const AdamWStep> steps) {
  std::vector<FlatEntry<AdamWElements>> entries;
  for (const AdamWStep& step : steps) entries.push_back(entry_of(elements_of_step(step), extent_of_step(step)));
  launch_steps<AdamWElements>(native(as_cuda_stream(stream)), entries);
}

}  // namespace tutti::cuda

namespace tutti {

void add_on_cuda(CudaStream& stream, const Tensor& to, const Tensor& from) {
  cuda::launch_steps(cuda::native(stream), cuda::AddElements{cuda::device_f32(to), cuda::device_f32(from)},
                     cuda::extent_of("adding", {to, from}));
}

}  // namespace tutti
