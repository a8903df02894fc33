#pragma once
// Where a step can be stopped to be looked at, for those who want to see what lies between its phases.

#include <functional>

namespace tutti {

enum class StepStop {
  played,     // the gradients are the sum of this rank's parts; no rank knows another's (exact: of its last part alone)
  exchanged,  // they are the sum over all ranks, of what this rank updates
  updated,    // the weights have taken their step, on every rank
};

// With exact, `played` comes again where a step is played again.
using AtStop = std::function<void(StepStop stop)>;

}  // namespace tutti
