#pragma once
// Steps made of a replica's pieces for measurements, and the account of where their time goes when ranks work together:
// the mean over the ranks of what each did and waited for, with the wait for stragglers apart from that for the
// exchange.

#include "tutti/comm/world.hpp"
#include "tutti/train/trainer.hpp"

#include <array>
#include <vector>

namespace tutti {

// None of these steps counts as one of the trainer's run. All are collective.
// A step whose phases and layers are waited for.
StepTimes timed_step(Trainer& trainer);
// Of the exchange alone: input, compute and update are slept through for as long as `pace` says, which has the
// intervals of a timed_step() of the same network and the update of all its weights. Leaves the weights unspecified.
StepTimes paced_step(Trainer& trainer, const StepTimes& pace);
// Exchange and update alone, as if the only part of this rank had these gradients: f32, a whole block.
void exchange_step(Trainer& trainer, const Tensor& gradients);

struct StepAccount {
  double input = 0;
  double compute = 0;
  double imbalance = 0;  // the slowest rank's compute beyond the mean
  double exchange = 0;   // exposed: what is left of progressing it and waiting for it
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

// Of the same steps on every rank, one or more: medians over the steps. Collective.
StepAccount account_for(World& world, const std::vector<StepTimes>& steps);
// By phase and interval; all have the same intervals.
StepTimes median_of(const std::vector<StepTimes>& steps);
StepAccount mean_of(const std::vector<StepAccount>& accounts);

}  // namespace tutti
