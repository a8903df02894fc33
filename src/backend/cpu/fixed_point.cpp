#include "backend/cpu/fixed_point.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <span>

namespace tutti::cpu {
namespace {

constexpr double kGreatest = 0x1p62;

struct Run {
  std::size_t slice = 0;
  std::size_t begin = 0;  // of the request's values
  std::size_t end = 0;
  int exponent = 0;
};

// Calls `work` for the values of each slice that some values have a share in.
template <class Work>
void for_each_run(const FixedPointGrid& grid, std::int64_t place, std::size_t count, const Work& work) {
  const std::span<const std::int64_t> ends = host_i64(grid.ends);
  const std::int64_t stop = place + static_cast<std::int64_t>(count);
  auto slice = static_cast<std::size_t>(std::ranges::upper_bound(ends, place) - ends.begin());
  for (std::int64_t at = place; at < stop; ++slice) {
    const std::int64_t end = std::min(ends[slice], stop);
    work(Run{slice, static_cast<std::size_t>(at - place), static_cast<std::size_t>(end - place),
             host_i32(grid.exponents)[slice]});
    at = end;
  }
}

}  // namespace

void to_fixed_point(const FixedPointGrid& grid, const ToFixedPoint& request) {
  const std::span<const float> values = host_f32(request.values);
  const std::span<std::int64_t> sums = host_i64(request.sums);
  const std::span<std::int32_t> largest = host_i32(request.largest);
  for_each_run(grid, request.place, values.size(), [&](const Run& run) {
    const double scale = std::ldexp(1.0, run.exponent);
    std::int32_t most = largest[run.slice];
    for (std::size_t i = run.begin; i < run.end; ++i) {
      most = std::max(most, std::bit_cast<std::int32_t>(values[i]) & 0x7fffffff);
      const double scaled = double{values[i]} * scale;
      const double kept = scaled > -kGreatest && scaled < kGreatest ? scaled : 0;
      const auto steps = static_cast<std::int64_t>(std::nearbyint(kept));
      sums[i] = request.first ? steps : sums[i] + steps;
    }
    largest[run.slice] = most;
  });
}

void from_fixed_point(const FixedPointGrid& grid, const FromFixedPoint& request) {
  const std::span<const std::int64_t> sums = host_i64(request.sums);
  const std::span<float> values = host_f32(request.values);
  for_each_run(grid, request.place, values.size(), [&](const Run& run) {
    const double scale = std::ldexp(1.0, -run.exponent);
    for (std::size_t i = run.begin; i < run.end; ++i) {
      const double value = static_cast<double>(sums[i]) * scale;
      values[i] = std::abs(value) < double{std::numeric_limits<float>::min()} ? 0.0F : static_cast<float>(value);
    }
  });
}

}  // namespace tutti::cpu
