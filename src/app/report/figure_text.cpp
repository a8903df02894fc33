#include "figure_text.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace tutti {

std::string percent_text(double share) {
  if (share == 0 || share == 1) return fmt::format("{:.0f} %", 100 * share);
  // Never all or nothing where it is not.
  const std::string text = fmt::format("{:.2f} %", 100 * share);
  if (text == "100.00 %") return "> 99.99 %";
  return text == "0.00 %" ? "< 0.01 %" : text;
}

std::string decimal_text(std::optional<double> value, int digits) {
  return value ? fmt::format("{:.{}f}", *value, digits) : "-";
}

std::string seconds_text(double seconds) {
  constexpr double kMicrosecond = 1e-6;
  if (seconds < kMicrosecond) return "0 ms";
  if (seconds < 0.0995) return fmt::format("{:.3g} ms", 1000 * seconds);
  if (seconds < 60) return fmt::format("{:.{}f} s", seconds, seconds < 10 ? 2 : 1);
  const auto whole = static_cast<std::int64_t>(std::lround(std::min(seconds, 1e15)));
  if (whole < 3600) return fmt::format("{} min {} s", whole / 60, whole % 60);
  return fmt::format("{} h {} min", whole / 3600, whole % 3600 / 60);
}

std::string count_text(std::int64_t count) {
  std::string digits = fmt::format("{}", count);
  const std::size_t first = count < 0 ? 1 : 0;
  for (std::size_t i = digits.size(); i > first + 3;) {
    i -= 3;
    digits.insert(i, 1, ',');
  }
  return digits;
}

std::string whole_text(double value) {
  constexpr double kMost = 9e18;
  return count_text(std::llround(std::clamp(value, -kMost, kMost)));
}

std::string bytes_text(double bytes) {
  if (bytes < 0x1p20) return fmt::format("{:.1f} KiB", bytes / 0x1p10);
  return bytes < 0x1p30 ? fmt::format("{:.1f} MiB", bytes / 0x1p20) : fmt::format("{:.1f} GiB", bytes / 0x1p30);
}

std::string rate_text(double value) { return fmt::format("{:.6g}", value); }

}  // namespace tutti
