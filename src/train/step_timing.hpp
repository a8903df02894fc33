#pragma once
// Timing of steps on a device that runs behind the host: which phase it has reached, how far the host may be ahead, and
// how long the phases of a step take.

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

// Records a timed event in the stream where a step enters another phase, and reports the phase to the rank's status
// once the event has completed. Only the first of a rank's parts has events. Waits for the device only if no work is
// pending or may be; the host's clock is used then.
class PhaseTimeline : public PhaseQueue {
 public:
  // All borrowed. Does nothing on a synchronous device.
  PhaseTimeline(Backend& backend, Stream& stream, RankStatus& status);
  PhaseTimeline(const PhaseTimeline&) = delete;
  PhaseTimeline& operator=(const PhaseTimeline&) = delete;
  ~PhaseTimeline() override;

  bool enqueue(const StepPhase& at) override;
  // Reports the marks that have been reached.
  void poll();
  // Waits until all marks have been reached and reported. The host's clock is used until the next step begins.
  void synchronize();

 private:
  struct Mark {
    std::unique_ptr<Event> event;
    StepPhase at;
  };
  void begin();
  bool is_redundant(const StepPhase& at) const;
  std::unique_ptr<Event> mark();

  Backend& backend_;
  Stream& stream_;
  RankStatus& status_;
  bool runs_ = false;
  std::deque<Mark> marks_;  // pending
  StepPhase marked_{};      // the last mark
  std::unique_ptr<Event> reached_;
  std::int64_t reached_ns_ = 0;
  std::vector<std::unique_ptr<Event>> spare_;
};

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
  void end_interval(std::int64_t final_elements) {
    if (times_ != nullptr) times_->compute.push_back({.seconds = lap(), .final_elements = final_elements});
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
