#pragma once
// Times the phases of a step where that is wanted: work is then waited for where a phase ends. Where it is not, nothing
// is timed and nobody waits.

#include "tutti/backend/stream.hpp"
#include "tutti/base/timing.hpp"
#include "tutti/train/step_times.hpp"

#include <cstdint>

namespace tutti {

class StepClock {
 public:
  // Borrowed. Null: not wanted.
  StepClock(Stream& stream, StepTimes* times) : stream_(stream), times_(times) {
    if (times_ != nullptr) lap();
  }

  // What was done since the last end of a phase was this.
  void end(double StepTimes::*phase) {
    if (times_ != nullptr) times_->*phase += lap();
  }
  void end_stretch(std::int64_t final_elements) {
    if (times_ != nullptr) times_->compute.push_back({.seconds = lap(), .final_elements = final_elements});
  }
  // The compute so far is done once more.
  void start_again() {
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
