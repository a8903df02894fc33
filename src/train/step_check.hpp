#pragma once
// What is checked of every step, around its exchange.

#include "tutti/train/replica_state.hpp"

#include <cstdint>

namespace tutti {

struct PartsOfStep;
struct StepResult;

// A check sees the phases of a step in their order, and all of them again when the step is repeated.
class StepCheck {
 public:
  virtual ~StepCheck() = default;
  // The parts are about to be computed; it may add its observer to them, or delay their exchange. Asynchronous.
  virtual void before_parts(PartsOfStep&) {}
  // The exchange of gradients up to ready_elements is about to start. Asynchronous.
  virtual void before_exchange(std::int64_t /*ready_elements*/) {}
  // This rank's parts are computed; the exchange may still run. Collective. Asynchronous.
  virtual void after_parts(const PartsOfStep&) {}
  // The gradients are those of all ranks. If the outcome, which is the same on all ranks, is not `valid`, later checks
  // and the update do not take place, and the result says why. Collective.
  virtual StepOutcome after_exchange(const PartsOfStep&, StepResult&) { return StepOutcome::valid; }
};

}  // namespace tutti
