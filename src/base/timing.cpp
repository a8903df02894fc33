#include "tutti/base/timing.hpp"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <ctime>

namespace tutti {
namespace {

double quantile(const std::vector<double>& sorted, double fraction) {
  const double index = fraction * static_cast<double>(sorted.size() - 1);
  const auto below = static_cast<std::size_t>(std::floor(index));
  const std::size_t above = std::min(below + 1, sorted.size() - 1);
  return std::lerp(sorted[below], sorted[above], index - static_cast<double>(below));
}

double seconds_of(clockid_t clock) {
  timespec time{};
  static_cast<void>(::clock_gettime(clock, &time));  // fails only for a clock that does not exist
  return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_nsec) * 1e-9;
}

}  // namespace

double thread_cpu_seconds() { return seconds_of(CLOCK_THREAD_CPUTIME_ID); }
double process_cpu_seconds() { return seconds_of(CLOCK_PROCESS_CPUTIME_ID); }

Quartiles quartiles_of(std::vector<double> values) {
  std::ranges::sort(values);
  return {.low = quantile(values, 0.25), .median = quantile(values, 0.5), .high = quantile(values, 0.75)};
}

}  // namespace tutti
