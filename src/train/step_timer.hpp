#pragma once
#include "tutti/backend/stream.hpp"
#include "tutti/base/timing.hpp"
#include "tutti/train/replica.hpp"

#include <cstdint>

namespace tutti {

// Times the phases of a step and waits for the work where a phase ends, if times are requested; else does nothing.
class StepTimer {
 public:
  // Borrowed. Null: not requested.
  StepTimer(Stream& stream, StepTimes* times) : stream_(stream), times_(times) {
    if (times_ != nullptr) lap();
  }

  // Ends a phase.
  void end(double StepTimes::*phase) {
    if (times_ != nullptr) times_->*phase += lap();
  }
  void end_interval(std::int64_t ready_elements) {
    if (times_ != nullptr) times_->compute.push_back({.seconds = lap(), .ready_elements = ready_elements});
  }
  // The step is repeated: the time so far counts as waiting.
  void restart() {
    if (times_ == nullptr) return;
    times_->waiting += times_->compute_seconds() + lap();
    times_->compute.clear();
  }

 private:
  double lap() {
    stream_.synchronize();
    const double seconds = watch_.seconds();
    watch_.restart();
    return seconds;
  }

  Stream& stream_;
  StepTimes* times_;
  Stopwatch watch_;
};

}  // namespace tutti
