#pragma once
// Limits how many steps the host is ahead of a device that computes them asynchronously, and measures how long they
// took. Never waits for a synchronous device.

#include "tutti/backend/backend.hpp"
#include "tutti/base/timing.hpp"

#include <algorithm>
#include <cstddef>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

namespace tutti {

class StepThrottle {
 public:
  // Borrowed.
  StepThrottle(Backend& backend, Stream& stream, int steps_ahead) : stream_(stream) {
    for (int i = 0; i < std::max(0, steps_ahead) + 1; ++i) ends_.push_back(backend.make_event());
  }

  // Starts the clock unless it runs.
  void begin_step() {
    if (!clock_) clock_.emplace();
  }
  // Call it when a step is enqueued. Returns when all steps but the last `steps_ahead` are done.
  void end_step() {
    stream_.record(*ends_[next_]);
    next_ = (next_ + 1) % ends_.size();
    stream_.await(*ends_[next_]);
  }
  // Waits until all steps are done, stops the clock and returns its seconds.
  double synchronize() {
    if (!clock_) return 0;
    stream_.synchronize();
    return std::exchange(clock_, std::nullopt)->seconds();
  }

 private:
  Stream& stream_;
  std::vector<std::unique_ptr<Event>> ends_;  // of the last steps, as a ring
  std::size_t next_ = 0;
  std::optional<Stopwatch> clock_;
};

}  // namespace tutti
