#pragma once
// The axis of a chart: how far it goes, where its ticks are and what stands beside them.

#include <string>
#include <vector>

namespace tutti {

struct Extent {
  double low = 0;
  double high = 0;
};

struct Axis {
  double low = 0;
  double high = 1;
  bool is_logarithmic = false;
  std::vector<double> ticks{};  // ascending, from low to high

  // How far along the axis a value lies: 0 at its low end, 1 at its high one.
  double place(double value) const;
};

// Round numbers that hold the extent, about so many; of whole numbers alone where only they mean anything.
Axis linear_axis(const Extent& extent, int ticks, bool whole = false);
// Both ends above 0.
Axis logarithmic_axis(const Extent& extent, int ticks);

// As short as it tells one tick from the next.
std::string tick_text(double value);

}  // namespace tutti
