#include "axis.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace tutti {
namespace {

// 1, 2 or 5 times a power of ten, no less than `least`.
double round_step(double least) {
  const double power = std::pow(10.0, std::floor(std::log10(least)));
  for (const double digit : {1.0, 2.0, 5.0}) {
    if (digit * power >= least * (1 - 1e-9)) return digit * power;
  }
  return 10 * power;
}

}  // namespace

double Axis::place(double value) const {
  if (is_logarithmic) return (std::log(value) - std::log(low)) / (std::log(high) - std::log(low));
  return (value - low) / (high - low);
}

Axis linear_axis(const Extent& extent, int ticks, bool whole) {
  const double least_span = std::max(1e-12, 1e-6 * std::max(std::abs(extent.low), std::abs(extent.high)));
  const double span = std::max(extent.high - extent.low, least_span);
  const double step = std::max(round_step(span / ticks), whole ? 1.0 : 0.0);
  const double first = std::floor(extent.low / step + 1e-6);
  const double last = std::max(first + 1, std::ceil(extent.high / step - 1e-6));
  Axis axis{.low = first * step, .high = last * step};
  for (double i = first; i <= last; ++i) axis.ticks.push_back(i * step);
  return axis;
}

Axis logarithmic_axis(const Extent& extent, int ticks) {
  Axis axis{.low = extent.low / 1.2, .high = extent.high * 1.2, .is_logarithmic = true};
  const int first = static_cast<int>(std::floor(std::log10(axis.low)));
  const int last = static_cast<int>(std::ceil(std::log10(axis.high)));
  constexpr int kFewDecades = 3;
  const bool between = last - first <= kFewDecades;
  const int every = std::max(1, (last - first) / ticks);
  for (int power = first; power <= last; power += every) {
    for (const double digit : {1.0, 2.0, 5.0}) {
      const double tick = digit * std::pow(10.0, power);
      if (tick >= axis.low && tick <= axis.high && (digit == 1 || between)) axis.ticks.push_back(tick);
    }
  }
  return axis;
}

std::string tick_text(double value) { return fmt::format("{:.6g}", std::abs(value) < 1e-12 ? 0 : value); }

}  // namespace tutti
