#pragma once
// The difference between a rank's clock and that of rank 0. Ranks on the same host share a clock. For other ranks it is
// estimated with many barriers: no rank leaves a barrier before all have entered it, so every barrier bounds the
// difference from both sides.

#include "tutti/comm/world.hpp"
#include "tutti/watch/rank_status.hpp"

#include <cstdint>
#include <functional>

namespace tutti {

struct ClockReading {
  std::int64_t at_ns = 0;      // on this rank's clock
  std::int64_t offset_ns = 0;  // this rank's clock minus rank 0's
  std::int64_t error_ns = 0;   // upper bound of the offset's error
};

// Collective.
ClockReading measure_clock_offset(World& world, const std::function<std::int64_t()>& clock = now_ns);

// Converts a time on this rank's clock to rank 0's clock. Interpolates (and extrapolates) the offset linearly between
// two readings.
std::int64_t root_clock_ns(const ClockReading& first, const ClockReading& second, std::int64_t own_ns);

}  // namespace tutti
