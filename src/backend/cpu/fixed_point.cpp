#include "backend/cpu/fixed_point.hpp"

#include "backend/cpu/library.hpp"
#include "backend/requests.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <span>

namespace tutti::cpu {
namespace {

constexpr double kSmallest = 0x1p-126;  // normal number in f32

// Of values in one slice.
struct Adding {
  const float* values;
  std::int64_t* sums;
  std::int64_t count;
  double scale;
};
struct Reading {
  const std::int64_t* sums;
  float* values;
  std::int64_t count;
  double scale;
};

struct Kernels {
  std::int32_t (*set)(Adding);  // the bits of the greatest |value|
  std::int32_t (*add)(Adding);
  void (*read)(Reading);
};

#define TUTTI_LOOPS "backend/cpu/fixed_point_loops.inc"
#include "backend/cpu/instruction_sets.inc"
#undef TUTTI_LOOPS

const Kernels& kernels() { return for_this_processor(avx512::kKernels, avx2::kKernels, generic::kKernels); }

// Calls work(slice, first of the request's values, their number, exponent) for each slice that these have a share in.
template <class Work>
void for_each_run(const FixedPointGrid& grid, std::int64_t place, std::int64_t count, const Work& work) {
  const std::span<const std::int64_t> ends = host_i64(grid.ends);
  const std::span<const std::int32_t> exponents = host_i32(grid.exponents);
  auto slice = static_cast<std::size_t>(std::ranges::upper_bound(ends, place) - ends.begin());
  for (std::int64_t at = 0; at < count; ++slice) {
    const std::int64_t end = std::min(ends[slice] - place, count);
    work(slice, at, end - at, exponents[slice]);
    at = end;
  }
}

}  // namespace

void to_fixed_point(const FixedPointGrid& grid, const ToFixedPoint& request) {
  require_fixed_point(grid, request);
  const float* const values = host_f32(request.values).data();
  std::int64_t* const sums = host_i64(request.sums).data();
  const std::span<std::int32_t> largest = host_i32(request.largest);
  const auto add = request.first ? kernels().set : kernels().add;
  for_each_run(grid, request.place, request.values.elements(),
               [&](std::size_t slice, std::int64_t at, std::int64_t count, int exponent) {
                 const std::int32_t most = add({values + at, sums + at, count, std::ldexp(1.0, exponent)});
                 largest[slice] = std::max(largest[slice], most);
               });
}

void from_fixed_point(const FixedPointGrid& grid, const FromFixedPoint& request) {
  require_fixed_point(grid, request);
  const std::int64_t* const sums = host_i64(request.sums).data();
  float* const values = host_f32(request.values).data();
  const auto read = kernels().read;
  for_each_run(grid, request.place, request.values.elements(),
               [&](std::size_t, std::int64_t at, std::int64_t count, int exponent) {
                 read({sums + at, values + at, count, std::ldexp(1.0, -exponent)});
               });
}

}  // namespace tutti::cpu
