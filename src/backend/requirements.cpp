#include "backend/requirements.hpp"

#include "tutti/base/error.hpp"

#include <fmt/format.h>

namespace tutti {
namespace {

void require_fixed_point(const FixedPointGrid& grid, const Tensor& values, const Tensor& sums, const Tensor& largest) {
  const std::int64_t slices = grid.ends.elements();
  if (values.elements() == sums.elements() && grid.exponents.elements() == slices && largest.elements() == slices) {
    return;
  }
  throw Error(ErrorSource::internal,
              fmt::format("{} values and {} sums on a grid of {} slices with {} exponents and {} largest values",
                          values.elements(), sums.elements(), slices, grid.exponents.elements(), largest.elements()));
}

}  // namespace

void require_residual(const LayerSpec& spec, const LayerRequest& request) {
  if (request.residual.format != nullptr && request.residual.shape == request.input.shape) return;
  throw Error(ErrorSource::input,
              fmt::format("{}: it adds an activation of {} to its input of {}, but both must have one shape; choose "
                          "channels and strides that make them equal",
                          type_name(spec), request.residual.shape.text(), request.input.shape.text()));
}

void require_training(LayerMode mode, const LayerBackward& pass) {
  if (mode != LayerMode::training) {
    throw Error(ErrorSource::internal, "a plan made for evaluation is asked for gradients");
  }
  if (pass.output_gradients.empty()) throw Error(ErrorSource::internal, "a layer is given no gradient of its output");
}

void require_fixed_point(const FixedPointGrid& grid, const ToFixedPoint& request) {
  require_fixed_point(grid, request.values, request.sums, request.largest);
}

void require_fixed_point(const FixedPointGrid& grid, const FromFixedPoint& request) {
  require_fixed_point(grid, request.values, request.sums, grid.ends);
}

void require_digests(std::span<const DigestedTensor> tensors, const Tensor& digests, MemorySpace space) {
  if (digests.elements() != std::ssize(tensors)) {
    throw Error(ErrorSource::internal,
                fmt::format("{} tensors are digested into {} digests", tensors.size(), digests.elements()));
  }
  for (const auto& [values, start] : tensors) {
    const bool fits =
        values.type == ElementType::f32 || values.type == ElementType::i32 || values.type == ElementType::i64;
    if (fits && values.space == space) continue;
    throw Error(ErrorSource::internal, fmt::format("a tensor of {} {} in other memory, or that has no digest",
                                                   values.shape.text(), name_of(values.type)));
  }
}

void require_search(const NotFiniteSearch& search) {
  const bool always = search.only_if.data == nullptr;
  if (search.found.elements() == 1 && (always || search.only_if.elements() == 1) && search.ends.elements() > 0) return;
  throw Error(ErrorSource::internal,
              fmt::format("values are looked for in {} slices, with {} numbers to raise and {} to go by",
                          search.ends.elements(), search.found.elements(), search.only_if.elements()));
}

}  // namespace tutti
