#pragma once
// The difference between a rank's clock and that of rank 0. Ranks of one host share a clock. The others call many
// barriers: no rank leaves a barrier before all have come, so every barrier bounds the difference from both sides.

#include "tutti/comm/world.hpp"
#include "tutti/watch/rank_status.hpp"

#include <cstdint>
#include <functional>

namespace tutti {

struct ClockReading {
  std::int64_t at_ns = 0;      // of this rank's clock
  std::int64_t offset_ns = 0;  // this rank's clock less that of rank 0
  std::int64_t error_ns = 0;   // of the offset, at most
};

// Collective.
ClockReading read_clock(World& world, const std::function<std::int64_t()>& clock = now_ns);

// This rank's time on rank 0's clock, between two readings and beyond; clocks drift evenly.
std::int64_t root_clock_ns(const ClockReading& one, const ClockReading& other, std::int64_t own_ns);

}  // namespace tutti
