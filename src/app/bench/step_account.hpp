#pragma once
// Where the time of a step goes when ranks work together: the mean over the ranks of what each of them did and waited
// for, the wait for later ranks told apart from that for the exchange.

#include "tutti/comm/world.hpp"
#include "tutti/train/step_times.hpp"

#include <array>
#include <vector>

namespace tutti {

struct StepAccount {
  double input = 0;
  double compute = 0;
  double imbalance = 0;  // the slowest rank's compute beyond the mean
  double exchange = 0;   // exposed: what is left of driving it and waiting for it
  double update = 0;

  double total() const { return input + compute + imbalance + exchange + update; }
};

// By name.
struct StepItem {
  const char* name;
  double StepAccount::*seconds;
};
inline constexpr std::array kStepItems{
    StepItem{"input", &StepAccount::input}, StepItem{"compute", &StepAccount::compute},
    StepItem{"imbalance", &StepAccount::imbalance}, StepItem{"exchange", &StepAccount::exchange},
    StepItem{"update", &StepAccount::update}};

// Of the same steps on every rank, one at least: medians over the steps. Collective.
StepAccount account_for(World& world, const std::vector<StepTimes>& steps);
// By phase and stretch; all have the same stretches.
StepTimes median_of(const std::vector<StepTimes>& steps);
// Means of several.
StepAccount mean_of(const std::vector<StepAccount>& accounts);

}  // namespace tutti
