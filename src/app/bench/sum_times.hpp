#pragma once
// Sums over the ranks against the clock: in rounds, so that a machine that slows down does so for all of them.

#include "tutti/comm/world.hpp"

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace tutti {

struct SumTrial {
  std::string algorithm;
  // One sum, from its start to where its result may be used. Collective.
  std::function<void()> once;
  // Brings the ranks together, up to what a short sum takes. Collective.
  std::function<void()> meet;
  std::int64_t at_once = 1;  // sums between two looks at the clock
};

// Seconds of one sum by trial and by round, as the slowest rank saw it, after a few rounds that do not count.
// Collective.
std::vector<std::vector<double>> time_in_rounds(World& world, const std::vector<SumTrial>& trials, std::int64_t rounds);

// Short sums are timed several at once, so that coming together does not count.
std::int64_t sums_at_once(std::int64_t bytes);

}  // namespace tutti
