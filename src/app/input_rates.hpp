#pragma once
// Whether a network waits for its images, or they for it: what one core prepares against what a rank trains on.

#include "tutti/comm/world.hpp"
#include "tutti/data/batch_loader.hpp"

#include <string>

namespace tutti {

// Images/s.
struct InputRates {
  double core = 0;  // that one core prepares; 0: none was prepared
  double rank = 0;  // on which a rank trains if it never waits for one

  // That keep a rank supplied.
  double cores() const { return core > 0 ? rank / core : 0; }
  bool suffices(int readers) const { return cores() <= readers; }
};

// Of all ranks: `rank` is the mean. Collective.
InputRates input_rates(World& world, const PreparedImages& prepared, double rank);

// "a core prepares 512 images/s, and a GPU trains on 2980/s: 5.8 cores per GPU prepare its images".
std::string rates_text(const InputRates& rates, bool on_gpus);

}  // namespace tutti
