#pragma once
// What exchange and update of a step cost by themselves, on gradients at hand: time, bytes sent and memory held.

#include "tutti/base/timing.hpp"
#include "tutti/comm/world.hpp"

#include "bench.hpp"

#include <vector>

namespace tutti {

// Bytes are those of the rank that has most.
struct ExchangeCost {
  Quartiles step;
  double sent_bytes = 0;  // a step
  double exchange_bytes = 0;
  double optimizer_bytes = 0;
};

// This rank's gradients as they are, on the host.
std::vector<float> read_gradients(Readied& run);
// Of steps that this rank comes to with these gradients; leaves the run's weights unspecified. Collective.
ExchangeCost measure_exchange(World& world, Readied& run, const TimedSteps& steps, std::vector<float>& gradients);

}  // namespace tutti
