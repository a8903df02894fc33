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

ClockReading read_clock(World& world, const std::function<std::int64_t()>& clock) {
  Barriers mine;
  for (Barrier& barrier : mine) {
    barrier.entered_ns = clock();
    world.barrier();
    barrier.left_ns = clock();
  }
  Barriers theirs = mine;
  world.broadcast(std::as_writable_bytes(std::span(theirs)), 0);
  std::int64_t least = std::numeric_limits<std::int64_t>::min();
  std::int64_t most = std::numeric_limits<std::int64_t>::max();
  for (std::size_t i = 0; i < kBarriers; ++i) {
    least = std::max(least, mine[i].entered_ns - theirs[i].left_ns);
    most = std::min(most, mine[i].left_ns - theirs[i].entered_ns);
  }
  const ClockReading same{.at_ns = mine.back().left_ns};
  const bool is_same_host = broadcast_text(world, world.host(), 0) == world.host();
  if (is_same_host && least <= 0 && most >= 0) return same;
  return {.at_ns = same.at_ns, .offset_ns = least + (most - least) / 2, .error_ns = (most - least + 1) / 2};
}

std::int64_t root_clock_ns(const ClockReading& one, const ClockReading& other, std::int64_t own_ns) {
  const auto between = static_cast<double>(other.at_ns - one.at_ns);
  const auto drift = static_cast<double>(other.offset_ns - one.offset_ns);
  const double drifted = between > 0 ? drift * static_cast<double>(own_ns - one.at_ns) / between : 0;
  return own_ns - one.offset_ns - std::llround(drifted);
}

}  // namespace tutti
