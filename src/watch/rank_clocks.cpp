#include "tutti/watch/rank_clocks.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <span>

namespace tutti {
namespace {

constexpr std::size_t kBarriers = 32;

struct Barrier {
  std::int64_t entered_ns = 0;
  std::int64_t left_ns = 0;
};
using Barriers = std::array<Barrier, kBarriers>;

}  // namespace

ClockReading measure_clock_offset(World& world, const std::function<std::int64_t()>& clock) {
  Barriers mine;
  for (Barrier& barrier : mine) {
    barrier.entered_ns = clock();
    world.barrier();
    barrier.left_ns = clock();
  }
  Barriers theirs = mine;
  world.broadcast(std::as_writable_bytes(std::span(theirs)), 0);
  std::int64_t min_ns = std::numeric_limits<std::int64_t>::min();
  std::int64_t max_ns = std::numeric_limits<std::int64_t>::max();
  for (std::size_t i = 0; i < kBarriers; ++i) {
    min_ns = std::max(min_ns, mine[i].entered_ns - theirs[i].left_ns);
    max_ns = std::min(max_ns, mine[i].left_ns - theirs[i].entered_ns);
  }
  const ClockReading same{.at_ns = mine.back().left_ns};
  const bool is_same_host = broadcast_text(world, world.host(), 0) == world.host();
  if (is_same_host && min_ns <= 0 && max_ns >= 0) return same;
  return {.at_ns = same.at_ns, .offset_ns = min_ns + (max_ns - min_ns) / 2, .error_ns = (max_ns - min_ns + 1) / 2};
}

std::int64_t root_clock_ns(const ClockReading& first, const ClockReading& second, std::int64_t own_ns) {
  const auto between = static_cast<double>(second.at_ns - first.at_ns);
  const auto drift = static_cast<double>(second.offset_ns - first.offset_ns);
  const double drifted = between > 0 ? drift * static_cast<double>(own_ns - first.at_ns) / between : 0;
  return own_ns - first.offset_ns - std::llround(drifted);
}

}  // namespace tutti
