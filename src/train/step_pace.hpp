#pragma once
// How far the host may be ahead of the processor, and how long the processor was at the steps. Where work is done at
// once neither ever waits.

#include "tutti/backend/backend.hpp"
#include "tutti/base/timing.hpp"

#include <cstddef>
#include <memory>
#include <optional>
#include <vector>

namespace tutti {

class StepPace {
 public:
  // Borrowed.
  StepPace(Backend& backend, Stream& stream, int steps_ahead);

  // The clock runs from here on, unless it already does.
  void begin_step();
  // A step is enqueued: returns when all but the last `steps_ahead` are done.
  void end_step();
  // Returns when all steps are done: the seconds since the clock ran. It stands until the next step.
  double settle();

 private:
  Stream& stream_;
  std::vector<std::unique_ptr<Event>> ends_;  // of the last steps, in turn
  std::size_t next_ = 0;
  std::optional<Stopwatch> clock_;
};

}  // namespace tutti
