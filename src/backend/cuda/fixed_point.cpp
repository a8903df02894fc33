#include "backend/cuda/fixed_point.hpp"

#include "backend/cuda/device_tensor.hpp"
#include "backend/cuda/fixed_point_kernels.hpp"
#include "backend/cuda/native.hpp"
#include "backend/requirements.hpp"

namespace tutti::cuda {
namespace {

template <class Request>
SlicedExtent extent_of(const FixedPointGrid& grid, const Request& request) {
  require_fixed_point(grid, request);
  const auto is_aligned = [](const Tensor& tensor) {
    return reinterpret_cast<std::uintptr_t>(tensor.data) % (2 * bytes_of(tensor.type)) == 0;
  };
  return {.ends = device_i64(grid.ends),
          .exponents = device_i32(grid.exponents),
          .slices = grid.ends.elements(),
          .place = request.place,
          .elements = request.values.elements(),
          .aligned = is_aligned(request.values) && is_aligned(request.sums)};
}

}  // namespace

void to_fixed_point(CudaStream& stream, const FixedPointGrid& grid, const ToFixedPoint& request) {
  launch_rounding(native(stream),
                  {.values = device_f32(request.values),
                   .sums = device_i64(request.sums),
                   .first = request.first,
                   .largest = device_i32(request.largest)},
                  extent_of(grid, request));
}

void from_fixed_point(CudaStream& stream, const FixedPointGrid& grid, const FromFixedPoint& request) {
  launch_unrounding(native(stream), {.sums = device_i64(request.sums), .values = device_f32(request.values)},
                    extent_of(grid, request));
}

}  // namespace tutti::cuda
