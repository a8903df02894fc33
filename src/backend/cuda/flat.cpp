#include "backend/cuda/flat.hpp"

#include "tutti/base/error.hpp"

#include "backend/cuda/check.hpp"
#include "backend/cuda/device_tensor.hpp"
#include "backend/cuda/flat_kernels.hpp"
#include "backend/cuda/native.hpp"
#include "backend/requirements.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <initializer_list>

namespace tutti::cuda {
namespace {

template <class Size>
void require_equal(std::string_view doing, Size one, Size other) {
  if (one == other) return;
  throw Error(ErrorSource::internal, fmt::format("{} tensors of {} and {}", doing, one, other));
}

// Of an optional factor.
const float* device_factor(const Tensor& factor) {
  if (factor.data == nullptr) return nullptr;
  require_equal<std::int64_t>("a factor among", factor.elements(), 1);
  return device_f32(factor);
}

// Tensors of equal size; one without memory is not there.
FlatExtent extent_of(std::string_view doing, std::initializer_list<Tensor> tensors) {
  FlatExtent extent{.elements = tensors.begin()->elements(), .aligned = true};
  for (const Tensor& tensor : tensors) {
    if (tensor.data == nullptr) continue;
    require_equal(doing, extent.elements, tensor.elements());
    extent.aligned &= reinterpret_cast<std::uintptr_t>(tensor.data) % 16 == 0;
  }
  return extent;
}

cudaMemcpyKind kind_of(MemorySpace to, MemorySpace from) {
  if (to == MemorySpace::host) return from == MemorySpace::host ? cudaMemcpyHostToHost : cudaMemcpyDeviceToHost;
  return from == MemorySpace::host ? cudaMemcpyHostToDevice : cudaMemcpyDeviceToDevice;
}

bool is_pageable(const Tensor& tensor) {
  if (tensor.space != MemorySpace::host) return false;
  cudaPointerAttributes attributes{};
  check(cudaPointerGetAttributes(&attributes, tensor.data));
  return attributes.type == cudaMemoryTypeUnregistered;
}

std::int64_t blocks_of(const Tensor& tensor) { return (tensor.elements() + kSquaresBlock - 1) / kSquaresBlock; }

SquaresTable table_of(std::span<const Tensor> tensors) {
  SquaresTable table;
  for (const Tensor& tensor : tensors) {
    table.entries[table.tensors++] = {device_f32(tensor), tensor.elements(), table.blocks};
    table.blocks += blocks_of(tensor);
  }
  return table;
}

}  // namespace

void copy(CudaStream& stream, const Tensor& to, const Tensor& from) {
  require_equal("copying between", to.bytes(), from.bytes());
  if (to.bytes() == 0) return;
  // The driver waits within such a copy, where nobody would hear that a sum before it never ends.
  if (is_pageable(to) || is_pageable(from)) stream.synchronize();
  check(cudaMemcpyAsync(to.data, from.data, to.bytes(), kind_of(to.space, from.space), native(stream)));
}

void fill_zero(CudaStream& stream, const Tensor& tensor) {
  if (tensor.space != MemorySpace::cuda) {
    throw Error(ErrorSource::internal,
                fmt::format("the cuda backend is to clear a tensor of {} in the host's memory", tensor.shape.text()));
  }
  if (tensor.bytes() > 0) check(cudaMemsetAsync(tensor.data, 0, tensor.bytes(), native(stream)));
}

void add(CudaStream& stream, const Tensor& to, const Tensor& from) {
  launch_add(native(stream), {device_f32(to), device_f32(from)}, extent_of("adding", {to, from}));
}

void blend(CudaStream& stream, const Tensor& to, const Tensor& from, float share) {
  launch_blend(native(stream), {device_f32(to), device_f32(from), 1 - share, share}, extent_of("blending", {to, from}));
}

void find_not_finite(CudaStream& stream, const NotFiniteSearch& search) {
  require_search(search);
  launch_search(native(stream),
                {.values = device_f32(search.values),
                 .ends = device_i64(search.ends),
                 .slices = search.ends.elements(),
                 .place = search.place,
                 .found = device_i32(search.found),
                 .only_if = search.only_if.data == nullptr ? nullptr : device_i32(search.only_if)},
                extent_of("looking at", {search.values}));
}

void sgd_step(CudaStream& stream, const SgdStep& step) {
  const bool has_velocity = step.velocity.data != nullptr;
  if (!has_velocity && step.momentum != 0) {
    throw Error(ErrorSource::internal, "a gradient step with momentum has no velocity");
  }
  launch_sgd(native(stream),
             {.weights = device_f32(step.weights),
              .gradients = device_f32(step.gradients),
              .velocity = has_velocity ? device_f32(step.velocity) : nullptr,
              .learning_rate = step.learning_rate,
              .momentum = step.momentum,
              .weight_decay = step.weight_decay,
              .nesterov = step.nesterov,
              .gradient_factor = device_factor(step.gradient_factor),
              .rate_factor = device_factor(step.rate_factor)},
             extent_of("a gradient step over", {step.weights, step.gradients, step.velocity}));
}

void adamw_step(CudaStream& stream, const AdamWStep& step) {
  launch_adamw(
      native(stream),
      {.weights = device_f32(step.weights),
       .gradients = device_f32(step.gradients),
       .first = device_f32(step.first_moment),
       .second = device_f32(step.second_moment),
       .of = factors_of(step),
       .gradient_factor = device_factor(step.gradient_factor)},
      extent_of("a gradient step over", {step.weights, step.gradients, step.first_moment, step.second_moment}));
}

void sum_squares(CudaStream& stream, std::span<const Tensor> tensors, const Tensor& sums) {
  require_equal("summing squares of tensors into", static_cast<std::int64_t>(tensors.size()), sums.elements());
  double* by_tensor = device_f64(sums);
  constexpr std::size_t kMost = SquaresTable::kMost;
  for (; !tensors.empty(); tensors = tensors.subspan(std::min(kMost, tensors.size()))) {
    const SquaresTable table = table_of(tensors.first(std::min(kMost, tensors.size())));
    auto* const by_block =
        static_cast<double*>(stream.scratch(static_cast<std::size_t>(table.blocks) * sizeof(double)));
    launch_sum_squares(native(stream), table, {by_block, by_tensor});
    by_tensor += table.tensors;
  }
}

void sum_runs(CudaStream& stream, const Tensor& values, const Tensor& ends, const Tensor& sums) {
  require_equal("summing runs of values into", ends.elements(), sums.elements());
  launch_sum_runs(native(stream), {device_f64(values), device_i64(ends), ends.elements(), device_f64(sums)});
}

void clip_factor(CudaStream& stream, const Tensor& squares, double most, const Tensor& factor) {
  require_equal<std::int64_t>("a factor among", factor.elements(), 1);
  launch_clip_factor(native(stream), {device_f64(squares), squares.elements(), most, device_f32(factor)});
}

void trust_factors(CudaStream& stream, const TrustFactors& request) {
  const std::int64_t tensors = request.factors.elements();
  require_equal("trust factors from", request.weight_squares.elements(), request.gradient_squares.elements());
  require_equal("trust factors into", request.weight_squares.elements(), tensors);
  launch_trust_factors(native(stream), {.weight_squares = device_f64(request.weight_squares),
                                        .gradient_squares = device_f64(request.gradient_squares),
                                        .gradient_factor = device_factor(request.gradient_factor),
                                        .trust = request.trust,
                                        .weight_decay = request.weight_decay,
                                        .factors = device_f32(request.factors),
                                        .tensors = tensors});
}

}  // namespace tutti::cuda

namespace tutti {

void add_on_cuda(CudaStream& stream, const Tensor& to, const Tensor& from) { cuda::add(stream, to, from); }

}  // namespace tutti
