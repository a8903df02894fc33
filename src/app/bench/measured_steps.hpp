#pragma once
// Steps for measurements, made from the operations of a replica, and the breakdown of their time: the mean over the
// ranks, with the wait for stragglers separate from the exchange.

#include "tutti/comm/world.hpp"
#include "tutti/train/trainer.hpp"

#include <array>
#include <vector>

namespace tutti {

// None of these steps counts as a step of the run. All are collective.
// A step that synchronizes after every phase and layer.
StepTimes timed_step(Trainer& trainer);
// A step with only the exchange: instead of input, compute and update it sleeps for the times in `pace`, which comes
// from timed_step() of the same network. Leaves the weights unspecified.
StepTimes paced_step(Trainer& trainer, const StepTimes& pace);
// Only exchange and update, with these gradients for the only part of this rank: a whole block of f32.
void exchange_step(Trainer& trainer, const Tensor& gradients);

struct StepAccount {
  double input = 0;
  double compute = 0;
  double imbalance = 0;  // the slowest rank's compute beyond the mean
  double exchange = 0;   // exposed: overlapping it, and waiting for it
  double update = 0;

  double total() const { return input + compute + imbalance + exchange + update; }
};

// A field of StepAccount by name.
struct StepItem {
  const char* name;
  double StepAccount::*seconds;
};
inline constexpr std::array kStepItems{
    StepItem{"input", &StepAccount::input}, StepItem{"compute", &StepAccount::compute},
    StepItem{"imbalance", &StepAccount::imbalance}, StepItem{"exchange", &StepAccount::exchange},
    StepItem{"update", &StepAccount::update}};

// Medians over one or more steps, which are the same on every rank. Collective.
StepAccount account_for(World& world, const std::vector<StepTimes>& steps);
// Medians by phase and interval; all steps have the same intervals.
StepTimes median_of(const std::vector<StepTimes>& steps);

}  // namespace tutti
