#pragma once
// The time of steps: where a processor that works later than the host enqueues has come to, how far the host may be
// ahead of it, and what the phases of a step take.

#include "tutti/backend/backend.hpp"
#include "tutti/base/timing.hpp"
#include "tutti/train/replica.hpp"
#include "tutti/watch/rank_status.hpp"

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <vector>

namespace tutti {

// Puts a timed mark into the stream where a step enters another phase, and reports the phase to the rank's status once
// the mark is found reached. Of a rank's many parts only the first has marks. Waits for the processor only where
// nothing is under way, or nothing is to be: what the host does then goes by the host's clock.
class DeviceTimeline : public PhaseQueue {
 public:
  // All borrowed. Does nothing where work is done at once.
  DeviceTimeline(Backend& backend, Stream& stream, RankStatus& status);
  DeviceTimeline(const DeviceTimeline&) = delete;
  DeviceTimeline& operator=(const DeviceTimeline&) = delete;
  ~DeviceTimeline() override;

  bool take(const StepPhase& at) override;
  // Reports the marks that have been reached by now.
  void look();
  // Returns when all marks have been reached and reported; the host's clock counts until a step begins.
  void settle();

 private:
  struct Mark {
    std::unique_ptr<Event> event;
    StepPhase at;
  };
  void begin();
  bool adds_nothing(const StepPhase& at) const;
  std::unique_ptr<Event> mark();

  Backend& backend_;
  Stream& stream_;
  RankStatus& status_;
  bool runs_ = false;
  std::deque<Mark> marks_;  // not found reached yet
  StepPhase marked_{};      // the last of all
  std::unique_ptr<Event> reached_;
  std::int64_t reached_ns_ = 0;
  std::vector<std::unique_ptr<Event>> spare_;
};

// Limits how far the host is ahead of the processor, and measures how long the processor took for the steps. Never
// waits where work is done at once.
class StepPace {
 public:
  // Borrowed.
  StepPace(Backend& backend, Stream& stream, int steps_ahead);

  // Starts the clock unless it runs.
  void begin_step();
  // To be called when a step is enqueued: returns when all but the last `steps_ahead` are done.
  void end_step();
  // Returns when all steps are done: the seconds since the clock ran. It stops until the next step.
  double settle();

 private:
  Stream& stream_;
  std::vector<std::unique_ptr<Event>> ends_;  // of the last steps, in turn
  std::size_t next_ = 0;
  std::optional<Stopwatch> clock_;
};

// Times the phases of a step where that is wanted: work is then waited for where a phase ends. Where it is not, nothing
// is timed and nobody waits.
class StepClock {
 public:
  // Borrowed. Null: not wanted.
  StepClock(Stream& stream, StepTimes* times) : stream_(stream), times_(times) {
    if (times_ != nullptr) lap();
  }

  // Ends a phase.
  void end(double StepTimes::*phase) {
    if (times_ != nullptr) times_->*phase += lap();
  }
  void end_interval(std::int64_t final_elements) {
    if (times_ != nullptr) times_->compute.push_back({.seconds = lap(), .final_elements = final_elements});
  }
  // The compute so far has to be done again.
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
