#include "backend/cuda/fixed_point.hpp"

#include "tutti/base/error.hpp"

#include "backend/cuda/device_tensor.hpp"
#include "backend/cuda/fixed_point_kernels.hpp"
#include "backend/cuda/native.hpp"

#include <fmt/format.h>

namespace tutti::cuda {
namespace {

SlicedExtent extent_of(const FixedPointGrid& grid, std::int64_t place, const Tensor& values, const Tensor& sums) {
  if (values.elements() != sums.elements() || grid.ends.elements() != grid.exponents.elements()) {
    throw Error(ErrorSource::internal,
                fmt::format("{} values and {} sums on a grid of {} slices with {} exponents", values.elements(),
                            sums.elements(), grid.ends.elements(), grid.exponents.elements()));
  }
  const auto is_aligned = [](const Tensor& tensor) {
    return reinterpret_cast<std::uintptr_t>(tensor.data) % (2 * bytes_of(tensor.type)) == 0;
  };
  return {.ends = device_i64(grid.ends),
          .exponents = device_i32(grid.exponents),
          .slices = grid.ends.elements(),
          .place = place,
          .elements = values.elements(),
          .aligned = is_aligned(values) && is_aligned(sums)};
}

}  // namespace

void to_fixed_point(CudaStream& stream, const FixedPointGrid& grid, const ToFixedPoint& request) {
  if (request.largest.elements() != grid.ends.elements()) {
    throw Error(ErrorSource::internal, fmt::format("the largest values of {} slices for a grid of {}",
                                                   request.largest.elements(), grid.ends.elements()));
  }
  launch_rounding(native(stream),
                  {.values = device_f32(request.values),
                   .sums = device_i64(request.sums),
                   .first = request.first,
                   .largest = device_i32(request.largest)},
                  extent_of(grid, request.place, request.values, request.sums));
}

void from_fixed_point(CudaStream& stream, const FixedPointGrid& grid, const FromFixedPoint& request) {
  launch_unrounding(native(stream), {.sums = device_i64(request.sums), .values = device_f32(request.values)},
                    extent_of(grid, request.place, request.values, request.sums));
}

}  // namespace tutti::cuda
