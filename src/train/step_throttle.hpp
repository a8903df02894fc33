#pragma once
// Limits how many steps the host is ahead of a device that computes them asynchronously.

#include "tutti/backend/backend.hpp"
#include "tutti/base/timing.hpp"

#include <cstddef>
#include <memory>
#include <optional>
#include <vector>

namespace tutti {

// Limits how far the host runs ahead of the device, and measures how long the steps took. Never waits for a synchronous
// device.
class StepThrottle {
 public:
  // Borrowed.
  StepThrottle(Backend& backend, Stream& stream, int steps_ahead);

  // Starts the clock unless it runs.
  void begin_step();
  // Call it when a step is enqueued. Returns when all steps but the last `steps_ahead` are done.
  void end_step();
  // Waits until all steps are done, stops the clock and returns its seconds.
  double synchronize();

 private:
  Stream& stream_;
  std::vector<std::unique_ptr<Event>> ends_;  // of the last steps, as a ring
  std::size_t next_ = 0;
  std::optional<Stopwatch> clock_;
};

}  // namespace tutti
